from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expkit.core.errors import RunDirectoryError
from expkit.run.names import MAX_NAME_CHARS, check_name, to_name


@pytest.mark.parametrize("name", ["digits", "lr-0.1", "a_b+c", "数字", "x" * 80, "_x", "7"])
def test_legal_names_are_taken_as_they_are(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../../x", "a/b", "/x", "a=b", "a,b", "a b", "[a]", "(a)", "{a}", "'a'"),
        *('"a"', "a\\b", "a\nb", "a\n", "a\x00b", "\x1b[31m", "-rf", ".hidden", "x" * 81),
    ],
)
def test_names_that_a_path_a_shell_or_an_override_would_misread_are_refused(name):
    with pytest.raises(RunDirectoryError, match="allowed") as caught:
        check_name(name)
    assert caught.value.exit_code == 2
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@given(st.text(max_size=200))
def test_every_text_becomes_a_legal_name(text):
    name = to_name(text)
    assert len(name) <= MAX_NAME_CHARS
    assert check_name(name) == name


def test_overrides_become_readable_names():
    assert to_name("optimizer.lr=0.1,model=mlp") == "optimizer.lr-0.1-model-mlp"
    assert to_name("../../x") == "x"
