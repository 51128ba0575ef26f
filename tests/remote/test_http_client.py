"""The line to a server: by way of whom it goes, whom it trusts, what it makes of odd answers."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from outlast import ServerRefused, ServerUnavailable
from outlast.remote import http_client as lines
from outlast.remote.http_client import ServerClient
from tests.support.requirements import require_program

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


class Answering:
    """Gives the same answer to whatever comes; `notified` are the first lines and the tokens."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.heard: list[tuple[str, str]] = []
        self.url = ""
        self.calls: set[Any] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls.add(asyncio.current_task())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except asyncio.IncompleteReadError:
            head = []
        if head:
            token = [one for one in head if one.lower().startswith("authorization")]
            self.heard.append((head[0], "".join(token)))
            writer.write(self.answer)
            if not self.answer:
                await reader.read()  # until the other side has had enough
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[Answering]:
    there = Answering(answer)
    server = await asyncio.start_server(there, "127.0.0.1", 0, ssl=tls)
    scheme = "http" if tls is None else "https"
    there.url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield there
    finally:
        server.close()
        await asyncio.gather(*there.calls)


async def posted(server: str) -> object:
    line = ServerClient(server, "olt_secret")
    try:
        return await line.post("/api", {})
    finally:
        await line.close()


async def test_a_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """R142: and left alone for those whom NO_PROXY names."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    async with answering(GOOD) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert await posted("http://jobs.invalid") == {}
        assert proxy.heard == [
            ("POST http://jobs.invalid/api HTTP/1.1", "authorization: Bearer olt_secret")
        ]
        monkeypatch.setenv("NO_PROXY", "jobs.invalid")
        with pytest.raises(ServerUnavailable):
            await posted("http://jobs.invalid")
        assert len(proxy.heard) == 1


async def test_a_redirect_carries_no_token_elsewhere() -> None:
    """R198: whoever it names could do with the token as they like."""
    async with answering(GOOD) as elsewhere:
        moved = f"HTTP/1.1 307 Moved\r\nlocation: {elsewhere.url}/api\r\ncontent-length: 0\r\n\r\n"
        async with answering(moved.encode()) as server:
            with pytest.raises(ServerRefused, match="is this the address"):
                await posted(server.url)
        assert elsewhere.heard == []


async def test_a_home_s_passwords_are_not_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R198: a .netrc that has something for everybody has nothing for us."""
    (tmp_path / ".netrc").write_text("default login somebody password hunter2\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with answering(GOOD) as server:
        await posted(server.url)
        [(_, token)] = server.heard
    assert token.endswith("Bearer olt_secret")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n<p>", b"", b"?"])
async def test_what_makes_no_sense_is_worth_another_try(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """R142: no JSON, no answer in time, no HTTP."""
    monkeypatch.setattr(lines, "CALL_TIMEOUT_S", 0.5)
    async with answering(answer) as server:
        with pytest.raises(ServerUnavailable):
            await posted(server.url)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """One that nobody vouches for, and its key."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    said = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    made = [require_program("openssl"), *said.split(), *named, *files]
    subprocess.run(made, check=True, capture_output=True)
    return certificate, key


async def test_a_server_must_show_a_certificate_that_somebody_vouches_for(
    certificate: tuple[Path, Path],
) -> None:
    """R198: those of the system, or of SSL_CERT_FILE; its token is not sent to any other."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)
    async with answering(GOOD, tls) as server:
        assert "CERTIFICATE_VERIFY_FAILED" in await called(server.url, {})
        assert server.heard == []
        assert await called(server.url, {"SSL_CERT_FILE": str(certificate[0])}) == "{}"
        assert len(server.heard) == 1


async def called(url: str, env: dict[str, str]) -> str:
    """From a process of its own: whom to trust is read once."""
    code = (
        "import asyncio, sys; from tests.remote.test_http_client import posted\n"
        "try: print(asyncio.run(posted(sys.argv[1])))\n"
        "except Exception as error: print(error)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, url, env={**os.environ, **env}, stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode().strip()
