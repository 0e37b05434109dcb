"""The system page's facts: versions, database and settings, for administrators of everything, and never a secret."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import SecretStr
from pydantic_settings import BaseSettings

from shardkeep.protocol import routes
from shardkeep_service.access.scopes import Scope
from shardkeep_service.blob_store.errors import BlobStoreUnavailable
from shardkeep_service.blob_store.memory import MemoryBlobStore
from shardkeep_service.blob_store.patient_probe import PatientProbe
from shardkeep_service.blob_store.presigner import StoreAbilities
from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.capabilities import SERVICE_VERSION
from shardkeep_service.database.database import Database
from shardkeep_service.database.migrate import head_revision
from shardkeep_service.service_context import ServiceContext
from shardkeep_service.settings import Settings
from shardkeep_service.system.settings_shown import shown_settings
from shardkeep_service.system.store_facts import ability_findings, store_info
from tests.unit.service.databases import BOTH_DATABASES
from tests.unit.service.local_service import LocalService
from tests.unit.service.training import Training

SECRET = "s3cr3t-value-that-nobody-may-see"
PASSWORD = "p%40ss/word?of:the&database"
PASSWORD_QUOTED = "p%2540ss%2Fword%3Fof%3Athe%26database"


def secret_fields(kind: type[BaseSettings], prefix: str = "") -> Iterator[str]:
    """The names of all settings that may hold a secret, however wrapped, found by their types."""
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseSettings):
            yield from secret_fields(field.annotation, f"{prefix}{name}_")
        elif field.annotation is SecretStr or SecretStr in get_args(field.annotation):
            yield prefix + name


def secretive(tmp_path: Path) -> Settings:
    """Every secret setting is set."""
    secrets = {name: SecretStr(SECRET) for name in secret_fields(Settings)}
    s3: dict[str, Any] = {name[3:]: value for name, value in secrets.items() if name.startswith("s3_")}
    others: dict[str, Any] = {name: value for name, value in secrets.items() if not name.startswith("s3_")}
    others["database_url"] = SecretStr(f"postgresql://user:{PASSWORD_QUOTED}@db.example:5432/shardkeep")
    bucket = S3Settings(bucket="bucket", endpoint_url="https://store.example", access_key_id=SECRET + "-id", **s3)
    return Settings(data_dir=tmp_path, s3=bucket, **others)


@BOTH_DATABASES
def test_an_administrator_of_everything_sees_versions_and_the_database(local: LocalService) -> None:
    found = local.ask("GET", routes.SYSTEM)

    assert found["service_version"] == SERVICE_VERSION
    assert found["python_version"] == platform.python_version()
    assert found["started_at"] <= found["now"]
    database = found["database"]
    assert database["kind"] == ("sqlite" if local.database.is_sqlite else "postgresql")
    assert database["version"][0].isdigit()
    assert database["revision"] == database["newest_revision"] == head_revision()
    assert database["size_bytes"] > 0
    assert database["connections_limit"] == local.settings.database_connections
    assert 0 <= database["connections_in_use"] <= database["connections_limit"]
    assert found["store"] == {
        "kind": "file_system",
        "place": str((local.settings.data_dir / "blobs").absolute()),
        "direct": False,
        "abilities": [],
    }
    settings = {setting["name"]: setting for setting in found["settings"]}
    data_dir = str(local.settings.data_dir)
    assert settings["data_dir"] == {"name": "data_dir", "value": data_dir, "secret": False, "is_default": False}
    assert settings["lease_seconds"]["is_default"]
    assert settings["s3_secret_access_key"]["value"] == "not set"
    expected = SECRET if local.database.is_sqlite else local.settings.resolved_database_url
    assert expected not in json.dumps(found)


@BOTH_DATABASES
def test_others_are_refused(training: Training) -> None:
    service = training.service
    tokens = [service.new_token(scope) for scope in (Scope.READ, Scope.WRITE, Scope.DELETE)]
    tokens.append(service.new_token(Scope.ADMIN, project="project"))

    for token in tokens:
        service.refused("scope_too_narrow", "GET", routes.SYSTEM, headers={"authorization": f"Bearer {token}"})


def test_no_secret_of_any_setting_and_no_password_of_a_url_is_shown(tmp_path: Path) -> None:
    settings = secretive(tmp_path)

    shown = shown_settings(settings)

    text = json.dumps([setting.model_dump() for setting in shown])
    for secret in (SECRET, PASSWORD, PASSWORD_QUOTED, "db.example", *settings.secrets):
        assert secret not in text
    secrets = {setting.name: setting.value for setting in shown if setting.secret}
    assert set(secrets) == {*secret_fields(Settings), "s3_access_key_id"}
    assert {"database_url", "s3_secret_access_key", "s3_session_token"} <= set(secrets)
    assert set(secrets.values()) == {"set"}
    unset = shown_settings(Settings(data_dir=tmp_path, s3=S3Settings(bucket=None)))
    assert {setting.value for setting in unset if setting.secret} == {"not set"}


def test_a_password_that_got_into_an_ordinary_setting_is_hidden(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "user" / "x", fault="https://user:hunter22@host/")

    assert "hunter22" not in str(shown_settings(settings))


def test_every_setting_is_shown_once_and_as_text(tmp_path: Path) -> None:
    shown = shown_settings(Settings(data_dir=tmp_path))

    names = [setting.name for setting in shown]
    assert len(set(names)) == len(names) == len(Settings.model_fields) - 1 + len(S3Settings.model_fields)
    values = {setting.name: setting.value for setting in shown}
    assert (values["metrics_public"], values["port"], values["metrics_port"]) == ("false", "8700", "not set")


def _bucket_context(tmp_path: Path, find: Any) -> ServiceContext:
    settings = secretive(tmp_path)
    return ServiceContext(Database("sqlite://"), MemoryBlobStore(), settings, find_abilities=PatientProbe(find))


def test_a_bucket_is_shown_with_what_it_was_seen_to_do(tmp_path: Path) -> None:
    abilities = StoreAbilities(checksum="crc64nvme", presigned_checksum_enforced=True, versioned=True)

    found = store_info(_bucket_context(tmp_path, lambda: abilities))

    assert (found.kind, found.place, found.direct) == ("s3", "https://store.example bucket/", False)
    passed = {finding.name: finding.passed for finding in found.abilities}
    assert passed == {
        "checksum": True,
        "presigned_checksum": True,
        "create_only": True,
        "presigned_create_only": False,
        "deletes": False,
    }
    assert SECRET not in found.model_dump_json()
    assert all(finding.detail for finding in ability_findings(StoreAbilities()))


def test_a_bucket_that_does_not_answer_is_a_finding_and_no_error(tmp_path: Path) -> None:
    def fail() -> StoreAbilities:
        raise BlobStoreUnavailable(f"no answer from https://user:{SECRET}@store.example")

    found = store_info(_bucket_context(tmp_path, fail))

    [finding] = found.abilities
    assert (finding.name, finding.passed) == ("answers", False)
    assert "no answer" in finding.detail
    assert SECRET not in finding.detail


@pytest.mark.parametrize("value", ["postgresql://user:pass@h/db", "sqlite:///x"])
def test_the_database_url_is_never_shown_not_even_without_a_password(tmp_path: Path, value: str) -> None:
    [shown] = [
        setting
        for setting in shown_settings(Settings(data_dir=tmp_path, database_url=SecretStr(value)))
        if setting.name == "database_url"
    ]

    assert (shown.value, shown.secret, shown.is_default) == ("set", True, False)
