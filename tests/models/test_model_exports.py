from __future__ import annotations

import subprocess
import sys

import pytest


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nfor name in sys.modules: sys.stdout.write(name + ' ')"
    command = [sys.executable, "-c", script]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_importing_the_packages_imports_no_framework_and_no_model():
    loaded = loaded_after("import expkit.models.torch, expkit.models.paddle, expkit.models.numpy")
    assert not loaded & {"torch", "paddle", "expkit.models.torch.mlp", "expkit.models.numpy.mlp"}


def test_one_model_does_not_import_the_others():
    loaded = loaded_after("from expkit.models.numpy import Linear")
    assert "expkit.models.numpy.layers" in loaded
    assert "expkit.models.numpy.mlp" not in loaded


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Cnn", "cnn"),
        ("LstmTagger", "bilstm_crf"),
        ("TextCnn", "text_cnn"),
        ("Transformer", "transformer"),
        ("TransformerTagger", "transformer_crf"),
    ],
)
def test_a_model_without_numpy_version_says_so(name, model):
    from expkit.models import numpy as package

    with pytest.raises(AttributeError) as caught:
        getattr(package, name)
    assert str(caught.value) == (
        f"model {model} has no NumPy version; allowed: mlp (or driver=torch, driver=paddle)"
    )


def test_an_unknown_name_lists_the_models():
    from expkit.models import torch as package

    allowed = "Cnn, LinearChainCrf, LstmTagger, Mlp, TextCnn, Transformer, TransformerTagger"
    with pytest.raises(AttributeError, match=f"'Resnet'; allowed: {allowed}$"):
        getattr(package, "Resnet")  # noqa: B009 - read through the package on purpose


def test_exported_names_can_all_be_imported():
    from expkit.models import numpy as package

    assert all(getattr(package, name).__name__ == name for name in package.__all__)
