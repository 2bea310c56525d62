"""Errors a user can act on, and the suggestion for a misspelt word."""

import pytest

from fedsir.errors import ConfigError, DataError, FedsirError, MethodError, RunFolderError, did_you_mean


@pytest.mark.parametrize("kind", [ConfigError, DataError, RunFolderError, MethodError])
def test_every_error_is_caught_as_one_family_and_keeps_its_message(kind):
    with pytest.raises(FedsirError) as caught:
        raise kind("no such file; run `fedsir data`")
    assert str(caught.value) == "no such file; run `fedsir data`"


def test_the_family_does_not_swallow_programming_errors():
    # The command line prints a FedsirError as one line; a bug must keep its traceback.
    assert not issubclass(FedsirError, (ValueError, TypeError, OSError))


def test_a_close_word_is_suggested_with_a_leading_blank():
    assert did_you_mean("fedsri", ["fedavg", "fedsir"]) == " Did you mean 'fedsir'?"


def test_the_closest_of_several_words_is_suggested():
    assert did_you_mean("round", ["bound", "rounds", "ground_truth"]) == " Did you mean 'rounds'?"


@pytest.mark.parametrize(("word", "known"), [("quark", ["fedavg", "fedsir"]), ("fedsir", []), ("", ["fedsir"])])
def test_nothing_is_suggested_when_nothing_is_close(word, known):
    assert did_you_mean(word, known) == ""


def test_known_words_may_come_from_a_generator():
    assert did_you_mean("alhpa", (name for name in ("seed", "alpha"))) == " Did you mean 'alpha'?"
