"""Settings: where each comes from, what is refused and why; and that all of them, and all commands and routes, are
in the docs."""

from __future__ import annotations

import inspect
import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from tools import settings_table

from roost.cli.main import COMMANDS, Group, command_line, with_default
from roost.cli.serve import serve
from roost.settings import SETTINGS, Settings
from roost.settings_reading import SettingError, check_together, read, settings_of, shown

DOCUMENTS = Path(__file__).parents[1] / "docs"
NAMES = list(SETTINGS)
DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Settings)}


def found(folder: Path, flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """(value, source) of each setting."""
    return {item.name: (item.value, item.source) for item in read(flags or {}, environ or {}, folder)}


def write(folder: Path, text: str) -> Path:
    file = folder / "roost.toml"
    file.write_text(text)
    return file


# Precedence


def test_without_anything_all_are_defaults(tmp_path):
    assert found(tmp_path) == {name: (value, "default") for name, value in DEFAULTS.items()}
    assert settings_of(read({}, {}, tmp_path)) == Settings()


def test_a_flag_comes_before_a_variable_before_the_file_before_the_default(tmp_path):
    flags, environ = {"port": 1}, {"ROOST_PORT": "2"}
    assert found(tmp_path)["port"] == (8080, "default")
    write(tmp_path, "port = 3")
    assert found(tmp_path)["port"] == (3, "roost.toml")
    assert found(tmp_path, {}, environ)["port"] == (2, "ROOST_PORT")
    assert found(tmp_path, flags, environ)["port"] == (1, "--port")
    assert found(tmp_path, {"port": None}, environ)["port"] == (2, "ROOST_PORT"), "None is a flag that was not given"


VALUES: dict[str, tuple[Any, Any, Any]] = {
    "host": ("a", "b", "c"),
    "port": (1, 2, 3),
    "listen": ("a:1", "b:2", "unix:c"),
    "grpc": ("a:1", "b:2", "[::1]:3"),
    "grpc_public": ("a:1", "b:2", "[::1]:3"),
    "tls_cert": ("a", "b", "c"),
    "tls_key": ("a", "b", "c"),
    "client_ca": ("a", "b", "c"),
    "auth": ("required", "open", "auto"),
    "security_scheme": ("bearer", "apiKey", "jwt,mtls"),
    "security_description": ("a", "b", "c"),
    "jwt_issuer": ("https://a", "https://b", "https://c"),
    "jwt_audience": ("a", "b", "c"),
    "jwt_jwks": ("https://a", "https://b", "https://c"),
    "jwt_scopes": ("agent:a", "operate", "audit,metrics"),
    "jwt_scope_claim": ("a", "b", "c"),
    "jwt_tenant_claim": ("a", "b", "c"),
    "mtls_scopes": ("agent:a", "operate", "audit,metrics"),
    "unix_scopes": ("agent:a", "operate", "audit,metrics"),
    "unix_mode": ("660", "666", "600"),
    "ownership": ("tenant", "principal", "tenant"),
    "multi_tenant": ("off", "enforced", "declared"),
    "quotas": ("tenant.rate=1", "agent:a.tasks=2", "surface:admin.rate=3"),
    "auth_failures": (1, 2, 3),
    "open_metrics": (True, True, True),
    "cors_origins": ("https://a", "https://b:1", "http://c"),
    "hsts_s": (1, 2, 3),
    "card_alg": ("ES256", "EdDSA", "ES256"),
    "token": ("a", "b", "c"),
    "admin_token": ("a", "b", "c"),
    "max_parts": (1, 2, 3),
    "max_task_mb": (1, 2, 3),
    "max_values": (1, 2, 3),
    "max_depth": (10, 50, 100),
    "max_digits": (20, 30, 40),
    "max_metadata": (1, 2, 3),
    "max_headers": (1, 2, 3),
    "max_head_bytes": (1024, 2048, 4096),
    "head_s": (0.5, 1.5, 2.5),
    "write_s": (0.5, 1.5, 2.5),
    "max_unsent_mb": (1, 2, 3),
    "max_connections": (1, 2, 3),
    "data": ("a", "b", "c"),
    "store": ("postgresql://a/x", "postgresql://b/x", "postgresql://c/x"),
    "wake": ("nats://a", "nats://b", "nats://c"),
    "workers": (2, 3, 4),
    "secret_file": ("a", "b", "c"),
    "memory": (True, True, True),
    "root": ("a", "b", "c"),
    "a2a_03": (False, False, False),
    "strict": (True, True, True),
    "openai": (False, False, False),
    "openai_cancel": (True, True, True),
    "mcp": (False, False, False),
    "public_url": ("http://a", "http://b", "http://c"),
    "trusted_proxy": ("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"),
    "max_body": (1, 2, 3),
    "log_level": ("debug", "warning", "error"),
    "log_format": ("text", "json", "text"),
    "drain_s": (1.5, 2.5, 3.5),
    "push": (False, False, False),
    "push_allow_hosts": ("a", "b", "c"),
    "push_allow_cidrs": ("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"),
    "push_secret": ("a", "b", "c"),
    "push_attempts": (1, 2, 3),
    "push_retry_s": (0.5, 1.5, 2.5),
    "push_per_host": (1, 2, 3),
    "push_coalesce_ms": (1, 2, 3),
    "idempotency": ("always", "asked", "auto"),
    "idempotency_ttl_s": (1, 2, 3),
    "idempotency_max": (1, 2, 3),
    "retention_days": (0.5, 1.5, 2.5),
    "unserved_days": (0.5, 1.5, 2.5),
    "retention_tasks": (1, 2, 3),
    "min_free_mb": (1, 2, 3),
    "checkpoint_s": (1.5, 2.5, 0.0),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_can_be_given_in_all_three_ways(name, tmp_path):
    by_flag, by_variable, in_file = VALUES[name]
    variable, flag = f"ROOST_{name.upper()}", f"--{name.replace('_', '-')}"
    write(tmp_path, f"{name} = {msgspec.json.encode(in_file).decode()}")
    environ = {variable: str(by_variable).lower() if isinstance(by_variable, bool) else str(by_variable)}
    assert found(tmp_path)[name] == (in_file, "roost.toml")
    assert found(tmp_path, {}, environ)[name] == (by_variable, variable)
    if SETTINGS[name].flag:
        assert found(tmp_path, {name: by_flag}, environ)[name] == (by_flag, flag)


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("TRUE", True), ("0", False), ("false", False)]
)
def test_a_boolean_can_be_a_word_or_a_digit(text, value, tmp_path):
    assert found(tmp_path, {}, {"ROOST_MEMORY": text})["memory"] == (value, "ROOST_MEMORY")


def test_a_value_that_is_the_default_still_has_its_own_source(tmp_path):
    write(tmp_path, "memory = false")
    assert found(tmp_path)["memory"] == (False, "roost.toml")


def test_variables_of_others_are_left_alone(tmp_path):
    environ = {"ROOST_URL": "http://elsewhere", "PORT": "1"}
    assert {source for _, source in found(tmp_path, {}, environ).values()} == {"default"}


def test_settings_are_frozen_and_replaced_as_a_whole():
    settings = Settings()
    with pytest.raises(AttributeError):
        settings.port = 1
    assert (msgspec.structs.replace(settings, port=1).port, settings.port) == (1, 8080)


# Bad values


BAD: list[tuple[str, str]] = [
    ("port", "many"),
    ("port", "-1"),
    ("port", "65536"),
    ("memory", "perhaps"),
    ("grpc", "50051"),
    ("grpc", "localhost"),
    ("grpc", "localhost:65536"),
    ("grpc", "::1:50051"),
    ("grpc_public", "https://example.com:443"),
    ("max_body", "0"),
    ("max_body", "1.5"),
    ("log_level", "loud"),
    ("log_format", "yaml"),
    ("drain_s", "-1"),
    ("drain_s", "nan"),
    ("public_url", "example.com"),
    ("public_url", "ftp://example.com"),
    ("public_url", "http://"),
    ("public_url", "http://example.com/?q=1"),
    ("trusted_proxy", "everyone"),
    ("trusted_proxy", "10.0.0.0/8, 10.0.0.1/8"),
    ("auth", "sometimes"),
    ("security_scheme", "bearer,basic"),
    ("jwt_issuer", "idp.example.com"),
    ("unix_scopes", "everything"),
    ("unix_mode", "rw-"),
    ("quotas", "tenant.rps=5"),
    ("cors_origins", "https://app.example.com/path"),
    ("store", "mysql://host/database"),
    ("wake", "redis://host"),
    ("workers", "0"),
    ("max_head_bytes", "1023"),
    ("head_s", "0"),
    ("head_s", "inf"),
    ("retention_days", "-0.5"),
    ("push_allow_cidrs", "http://["),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_names_the_setting_and_where_it_came_from(name, value, tmp_path):
    variable, flag = f"ROOST_{name.upper()}", f"--{name.replace('_', '-')}"
    for flags, environ, in_file, source in (
        ({name: value}, {}, "", flag),
        ({}, {variable: value}, "", variable),
        ({}, {}, f'{name} = "{value}"', "roost.toml"),
    ):
        write(tmp_path, in_file)
        with pytest.raises(SettingError) as refusal:
            read(flags, environ, tmp_path)
        assert str(refusal.value).startswith(f"{name} is ")
        assert source in str(refusal.value)


EXPECTED = [
    ("port", "65536", "it must be a whole number from 0 to 65535"),
    ("port", "many", "it must be a whole number from 0 to 65535"),
    ("max_head_bytes", "1", "it must be a whole number of at least 1024"),
    ("head_s", "0", "it must be a number above 0"),
    ("drain_s", "-1", "it must be a number of at least 0"),
    ("memory", "perhaps", "it must be true or false"),
    ("auth", "sometimes", "it must be auto, required or open"),
]


@pytest.mark.parametrize(("name", "value", "says"), EXPECTED)
def test_a_value_out_of_bounds_is_told_the_bounds(name, value, says, tmp_path):
    with pytest.raises(SettingError, match=f"{name} is '{value}' .from --{name.replace('_', '-')}.: {says}"):
        read({name: value}, {}, tmp_path)


def test_a_bad_secret_is_not_repeated(tmp_path):
    write(tmp_path, "push_secret = 271828")
    with pytest.raises(SettingError, match=r"push_secret is '\*\*\*'") as refusal:
        read({}, {}, tmp_path)
    assert "271828" not in str(refusal.value)


def test_an_unknown_name_in_the_file_is_refused_and_named(tmp_path):
    file = write(tmp_path, 'prot = 9000\nport = 1\nhots = "a"')
    with pytest.raises(SettingError, match="unknown setting hots, prot") as refusal:
        read({}, {}, tmp_path)
    assert str(file) in str(refusal.value)


@pytest.mark.parametrize("text", ["port = ", "port 9000", "[port", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_refused_and_named(text, tmp_path):
    file = tmp_path / "roost.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SettingError, match=re.escape(str(file))):
        read({}, {}, tmp_path)


def test_networks_are_those_of_the_trusted_proxies():
    settings = Settings(trusted_proxy="10.0.0.0/8, ::1/128,")
    assert [str(network) for network in settings.networks()] == ["10.0.0.0/8", "::1/128"]


TOGETHER = [
    ({"store": "postgresql://h/d", "memory": True, "secret_file": "f"}, "store and memory"),
    ({"wake": "nats://h"}, "give --store postgresql"),
    ({"workers": 2}, "more than one worker needs PostgreSQL"),
    ({"store": "postgresql://h/d"}, "roost secret FILE"),
    ({"store": "postgresql://h/d", "secret_file": "f", "workers": 2, "grpc": "127.0.0.1:0"}, "share one port for gRPC"),
    ({"jwt_issuer": "https://idp"}, "give --jwt-audience too"),
    ({"jwt_audience": "me"}, "give --jwt-issuer too"),
    ({"token": "a" * 20, "admin_token": "a" * 20}, "are the same"),
]


@pytest.mark.parametrize(("changes", "says"), TOGETHER)
def test_settings_that_cannot_be_together_are_refused_with_what_to_do(changes, says):
    with pytest.raises(SettingError, match=says):
        check_together(Settings(**changes))


def test_settings_that_can_be_together_are_not_refused():
    check_together(Settings(store="postgresql://h/d", wake="nats://h", workers=3, secret_file="f"))


def test_variables_of_other_systems_are_read_where_our_own_are_not_set(tmp_path):
    theirs = {"PUSH_NOTIFICATION_ALLOWED_CIDRS": "10.0.0.0/8", "AIWG_IDEMPOTENCY_TTL": "60"}
    assert found(tmp_path, {}, theirs)["push_allow_cidrs"] == ("10.0.0.0/8", "PUSH_NOTIFICATION_ALLOWED_CIDRS")
    assert found(tmp_path, {}, theirs)["idempotency_ttl_s"] == (60, "AIWG_IDEMPOTENCY_TTL")
    both = {**theirs, "ROOST_IDEMPOTENCY_TTL_S": "7"}
    assert found(tmp_path, {}, both)["idempotency_ttl_s"] == (7, "ROOST_IDEMPOTENCY_TTL_S")


def test_secrets_are_shown_to_nobody(tmp_path):
    flags = {"push_secret": "hunter2", "store": "postgresql://me:hunter2@h:1/d?sslmode=require"}
    items = {item.name: shown(item) for item in read(flags, {}, tmp_path)}
    assert items["push_secret"] == "***"
    assert items["store"] == "postgresql://me@h:1/d?sslmode=require"
    flags = {"store": "postgresql://h/d?password=hunter2&sslmode=require", "jwt_jwks": "https://me:hunter2@idp/keys"}
    items = {item.name: shown(item) for item in read(flags, {}, tmp_path)}
    assert (items["store"], items["jwt_jwks"]) == ("postgresql://h/d?sslmode=require", "https://me@idp/keys")
    for store in ("mysql://me:hunter2@h/d", "host=h password=hunter2 dbname=d"):
        with pytest.raises(SettingError) as refused:
            read({"store": store}, {}, tmp_path)
        assert "hunter2" not in str(refused.value)
    flags = {"store": "postgresql://h/d", "wake": "nats://hunter2@h:4222"}
    items = {item.name: shown(item) for item in read(flags, {}, tmp_path)}
    assert items["wake"] == "nats://***@h:4222", "it is a token, not a user"


# Docs


def rows(document: str) -> list[list[str]]:
    """The cells of every table row, without backquotes."""
    lines = (DOCUMENTS / document).read_text().split("\n")
    return [
        [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]


def test_the_table_in_the_docs_is_made_from_the_declarations():
    written = settings_table.TABLE.search(settings_table.FILE.read_text())
    assert written is not None
    assert written.group() == settings_table.table(), "run: python -m tools.settings_table"


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_a_sentence(name):
    assert SETTINGS[name].sentence[0].isupper()
    assert "|" not in SETTINGS[name].sentence, "it would end a cell of the table"


@pytest.mark.parametrize("name", NAMES)
def test_every_default_is_a_value_that_could_be_given(name, tmp_path):
    text = str(DEFAULTS[name])
    assert found(tmp_path, {}, {SETTINGS[name].variable: text})[name] == (DEFAULTS[name], SETTINGS[name].variable)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_is_a_flag_of_serve_unless_it_is_a_secret_that_others_would_see(name):
    assert (name in inspect.signature(serve).parameters) is (name not in ("token", "admin_token"))


def commands() -> list[tuple[str, ...]]:
    """The commands as users type them, without the default command of a group."""
    groups = {name: entry for name, entry in COMMANDS.items() if isinstance(entry, Group)}
    members = [
        (name,) if member == group.default else (name, member)
        for name, group in groups.items()
        for member in group.commands
    ]
    return [*((name,) for name in COMMANDS if name not in groups), *members]


def documented_commands() -> list[tuple[str, ...]]:
    """The words before the first argument or option."""
    cells = [row[0].split()[1:] for row in rows("cli.md") if row[0].startswith("roost ")]
    return [tuple(takewhile(lambda word: word.islower() and word[0].isalpha(), words)) for words in cells]


def test_every_command_is_documented_and_no_other():
    assert sorted(documented_commands()) == sorted(commands())


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_can_be_loaded_alone_and_says_what_it_does(words):
    names = with_default(words)
    found = typer.main.get_command(command_line(names))
    for name in names:
        assert list(found.commands) == [name]
        found = found.commands[name]
        assert found.help


def test_all_commands_are_there_where_none_is_named():
    found = typer.main.get_command(command_line([]))
    assert set(found.commands) == set(COMMANDS)
    for name, entry in COMMANDS.items():
        if isinstance(entry, Group):
            assert set(found.commands[name].commands) == set(entry.commands)
