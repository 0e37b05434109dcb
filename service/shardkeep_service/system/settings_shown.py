"""Settings as people may see them: every one by name, of a secret only whether it is set. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from shardkeep.protocol.messages import SettingInfo
from shardkeep_service.observability.redaction import redact
from shardkeep_service.settings import Settings

SET: Final = "set"
NOT_SET: Final = "not set"
_ALSO_SECRET: Final = frozenset({"s3_access_key_id"})
"""Beside what is a `SecretStr`: half of a pair of credentials."""


def shown_settings(settings: Settings) -> list[SettingInfo]:
    """All settings, by the names they have in the environment, in lower case and without the common prefix."""
    secrets = [secret for secret in settings.secrets if secret]
    return [_shown(name, field, value, secrets) for name, field, value in _settings(settings, "")]


def _settings(settings: BaseSettings, prefix: str) -> Iterator[tuple[str, FieldInfo, Any]]:
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseSettings):
            yield from _settings(value, f"{prefix}{name}_")
        else:
            yield prefix + name, field, value


def _shown(name: str, field: FieldInfo, value: Any, secrets: list[str]) -> SettingInfo:
    is_secret = name in _ALSO_SECRET or isinstance(value, SecretStr) or _holds_secret(field.annotation)
    text = (SET if value else NOT_SET) if is_secret else redact(_text(value), secrets)
    default = field.get_default(call_default_factory=True)
    return SettingInfo(name=name, value=text, secret=is_secret, is_default=value == default)


def _holds_secret(annotation: Any) -> bool:
    """Whether a setting of this type may be a secret, however it is wrapped."""
    return annotation is SecretStr or any(map(_holds_secret, get_args(annotation)))


def _text(value: Any) -> str:
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_text, value))
    return f"{value:.15g}" if isinstance(value, float) else str(value)
