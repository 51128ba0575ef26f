"""Settings of the project of these tests; the database and `OUTLAST` come from the environment."""

import json
import os

DATABASES = {"default": json.loads(os.environ["SHOP_DATABASE"])}
if "SHOP_OTHER_DATABASE" in os.environ:
    DATABASES["other"] = json.loads(os.environ["SHOP_OTHER_DATABASE"])
OUTLAST = json.loads(os.environ.get("SHOP_OUTLAST", "{}"))

SECRET_KEY = "not secret"
USE_TZ = True
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "outlast.integrations.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
TASKS = {"default": {"BACKEND": "outlast.integrations.django.TaskBackend", "QUEUES": []}}
