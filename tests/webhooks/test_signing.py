"""Who a message is from, and when: told by its signature, and by nothing else."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast import InvalidOption, WebhookRefused
from outlast.webhooks.signing import keys_of, signature_headers
from outlast.webhooks.webhook import new_secret, verify

SECRET = new_secret()
BODY = b'{"type":"job.succeeded","data":{"id":7}}'


def sent(secret: Any = SECRET, body: bytes = BODY, ago: float = 0.0) -> dict[str, str]:
    return signature_headers(keys_of(secret), "an-id", body, int(time.time() - ago))


def test_what_was_signed_is_received() -> None:
    """R128: whatever the case in which a framework hands on the headers."""
    headers = sent()
    for named in (headers, {name.title(): value for name, value in headers.items()}):
        received = verify(named, BODY, SECRET)
        assert received.id == "an-id"
        assert abs((datetime.now(UTC) - received.sent_at).total_seconds()) < 10
        assert received.message == json.loads(BODY)


def test_signatures_are_those_of_the_convention() -> None:
    """R128: the example by which implementations of Standard Webhooks are told to agree."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    id, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}'
    assert signature_headers(keys_of(secret), id, body, 1614265330) == {
        "webhook-id": id,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_replay_is_refused_and_within_the_tolerance_known_by_its_id() -> None:
    """R128: an old message, or one from ahead, however well it is signed."""
    assert verify(sent(ago=290), BODY, SECRET).id == verify(sent(), BODY, SECRET).id
    with pytest.raises(WebhookRefused, match=r"it is 31[01] s old, and may be 300"):
        verify(sent(ago=310), BODY, SECRET)
    with pytest.raises(WebhookRefused, match="ahead"):
        verify(sent(ago=-310), BODY, SECRET)
    with pytest.raises(WebhookRefused, match="s old, and may be 5"):
        verify(sent(ago=10), BODY, SECRET, tolerance=5)


@pytest.mark.parametrize("place", range(len(BODY)))
def test_a_flipped_bit_of_the_body_is_refused(place: int) -> None:
    """R128"""
    flipped = bytearray(BODY)
    flipped[place] ^= 1
    with pytest.raises(WebhookRefused, match="no signature matches"):
        verify(sent(), bytes(flipped), SECRET)


def other_time(headers: dict[str, str]) -> str:
    return str(int(headers["webhook-timestamp"]) - 1)


TAMPERED: dict[str, Any] = {
    "another id": lambda h: {"webhook-id": "an-ie"},
    "another time": lambda h: {"webhook-timestamp": other_time(h)},
    "another version": lambda h: {"webhook-signature": "v2" + h["webhook-signature"][2:]},
    "cut short": lambda h: {"webhook-signature": h["webhook-signature"][:-1]},
    "nothing": lambda h: {"webhook-signature": "v1,"},
    "no comma": lambda h: {"webhook-signature": "v1"},
    "not even text": lambda h: {"webhook-signature": "v1,\ud800é"},
    "no number": lambda h: {"webhook-timestamp": "now"},
    "an odd number": lambda h: {"webhook-timestamp": "٣"},
    "a long number": lambda h: {"webhook-timestamp": "9" * 5000},
    "without id": lambda h: {"webhook-id": ""},
    "without time": lambda h: {"webhook-timestamp": ""},
    "without signature": lambda h: {"webhook-signature": ""},
}


@pytest.mark.parametrize("how", TAMPERED)
def test_whatever_else_is_changed_is_refused(how: str) -> None:
    """R128"""
    headers = sent()
    with pytest.raises(WebhookRefused):
        verify(headers | TAMPERED[how](headers), BODY, SECRET)
    with pytest.raises(WebhookRefused, match="no webhook-id and no webhook-timestamp and no"):
        verify({}, BODY, SECRET)


def test_another_secret_is_refused_and_two_overlap_while_they_are_changed() -> None:
    """R128: the sender signs with both, or the receiver knows both."""
    old, new, another = new_secret(), new_secret(), new_secret()
    for by, known in ((old, [old, new]), ([old, new], new), ([old, new], [another, old])):
        assert verify(sent(by), BODY, known).id == "an-id"
    for by, known in ((old, new), ([old, new], another)):
        with pytest.raises(WebhookRefused, match="no signature matches"):
            verify(sent(by), BODY, known)


def test_what_is_signed_and_no_json_is_refused() -> None:
    with pytest.raises(WebhookRefused, match="is not JSON"):
        verify(sent(body=b"\xff"), b"\xff", SECRET)


POOR = ["", "hunter2hunter2hunter2hunter2", "whsec_", "whsec_%%%", "whsec_aGVsbG8=", b"x" * 32, 7]


@pytest.mark.parametrize("secret", [*POOR, [], [SECRET, "hunter2"], "whsec_" + "A" * 200])
def test_a_poor_secret_is_refused_and_not_quoted(secret: Any) -> None:
    """R198: too short, too long, or no key at all."""
    with pytest.raises((InvalidOption, TypeError)) as refused:
        keys_of(secret)
    for word in ("hunter2", "aGVsbG8", SECRET):
        assert word not in str(refused.value)


def test_secrets_are_long_and_differ() -> None:
    one, other = new_secret(), new_secret()
    assert one != other
    assert len(base64.b64decode(one.removeprefix("whsec_"))) == 32
