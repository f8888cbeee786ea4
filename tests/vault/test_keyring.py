"""The envelope of a secret: what opens it, what does not, and where master keys come from."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.cli.private_file import write_private
from mainspring.domain.errors import Invalid
from mainspring.vault.keyring import Bound, KeyMissing, Keyring, Sealed, Tampered, new_key_line, open_keyring, read_keys

BOUND = Bound(1, "secret", "db", 1)
VALUE = b"correct horse battery staple"


def ring(*ids: str) -> Keyring:
    return Keyring(read_keys("\n".join(map(new_key_line, ids)), "test"))


@given(st.binary(max_size=200))
def test_a_value_comes_back_and_is_not_in_its_envelope(value: bytes) -> None:
    keys = ring("a")
    sealed = keys.seal(value, BOUND)
    assert keys.open(sealed, BOUND) == value
    assert len(value) < 4 or value not in sealed.envelope


def test_the_same_value_is_encrypted_differently_each_time() -> None:
    keys = ring("a")
    assert len({keys.seal(VALUE, BOUND).envelope for _ in range(50)}) == 50


@pytest.mark.parametrize(
    "moved",
    [
        replace(BOUND, tenant=2),
        replace(BOUND, kind="channel"),
        replace(BOUND, name="db2"),
        replace(BOUND, version=2),
    ],
)
def test_an_envelope_opens_only_where_it_belongs(moved: Bound) -> None:
    keys = ring("a")
    with pytest.raises(Tampered):
        keys.open(keys.seal(VALUE, BOUND), moved)


def test_names_and_versions_cannot_be_confused() -> None:
    """Parts of what a value is bound to have their lengths, so that their borders cannot be moved."""
    assert Bound(1, "secret", "a1", 2).context() != Bound(1, "secret", "a", 12).context()


def test_every_changed_byte_is_noticed() -> None:
    keys = ring("a")
    sealed = keys.seal(VALUE, BOUND)
    for at in range(len(sealed.envelope)):
        changed = bytearray(sealed.envelope)
        changed[at] ^= 1
        with pytest.raises(Tampered):
            keys.open(replace(sealed, envelope=bytes(changed)), BOUND)
    for cut in (0, 1, 40, len(sealed.envelope) - 1):
        with pytest.raises(Tampered):
            keys.open(replace(sealed, envelope=sealed.envelope[:cut]), BOUND)


def test_wrapping_again_changes_the_key_and_keeps_the_ciphertext() -> None:
    old, new = new_key_line("old"), new_key_line("new")
    sealed = Keyring(read_keys(old, "test")).seal(VALUE, BOUND)
    both = Keyring(read_keys(f"{new}\n{old}", "test"))
    wrapped = both.wrap_again(sealed, BOUND)
    assert wrapped.key_id == "new" and wrapped.envelope[-len(VALUE) - 28 :] == sealed.envelope[-len(VALUE) - 28 :]
    only_new = Keyring(read_keys(new, "test"))
    assert only_new.open(wrapped, BOUND) == VALUE
    with pytest.raises(KeyMissing, match="'old' is needed"):
        only_new.open(sealed, BOUND)


def test_a_key_of_the_same_id_and_other_bytes_is_refused() -> None:
    sealed = ring("a").seal(VALUE, BOUND)
    with pytest.raises(Tampered):
        ring("a").open(sealed, BOUND)
    with pytest.raises(Tampered):
        ring("a").open(Sealed("a", b""), BOUND)


def test_a_key_that_was_added_to_the_file_is_found(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first, second = new_key_line("first"), new_key_line("second")
    write_private(file, first)
    running = open_keyring(file=str(file), text=None, descriptor=None)
    assert running is not None
    write_private(file, f"{second}\n{first}")
    sealed = Keyring(read_keys(second, "test")).seal(VALUE, BOUND)
    assert running.open(sealed, BOUND) == VALUE and running.current == "second"


def test_keys_come_from_a_descriptor_or_a_text() -> None:
    line = new_key_line("k")
    sealed = Keyring(read_keys(line, "test")).seal(VALUE, BOUND)
    read, write = os.pipe()
    os.write(write, line.encode())
    os.close(write)
    for keys in (
        open_keyring(file=None, text=None, descriptor=read),
        open_keyring(file=None, text=f"# a comment\n\n{line}\n", descriptor=None),
    ):
        assert keys is not None and keys.open(sealed, BOUND) == VALUE
    assert open_keyring(file=None, text=None, descriptor=None) is None
    with pytest.raises(Invalid, match="file descriptor"):
        open_keyring(file=None, text=None, descriptor=read)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 master keys"),
        ("only-an-id", "line 1 is not a master key"),
        ("bad/id QUFBQQ==", "line 1 is not a master key"),
        ("k not-base64!", "not base64"),
        ("k QUFBQQ==", "4 bytes instead of 32"),
        (f"k {'QUFB' * 10}QUE=\n" * 2, "is there twice"),
    ],
)
def test_a_bad_key_file_is_refused_without_a_part_of_it(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message) as refused:
        read_keys(text, "FILE")
    assert "QUFB" not in str(refused.value)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    write_private(file, new_key_line("k"))
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(Invalid, match="chmod 600"):
        open_keyring(file=str(file), text=None, descriptor=None)
    with pytest.raises(Invalid, match="cannot read the key file"):
        open_keyring(file=str(tmp_path / "none"), text=None, descriptor=None)


def test_derived_keys_differ_by_purpose_and_master_key() -> None:
    a, b = ring("a"), ring("a")
    assert len({a.derived("x"), a.derived("y"), b.derived("x")}) == 3 and a.derived("x") == a.derived("x")
