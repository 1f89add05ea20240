import subprocess
import sys

BROKEN = """
import torch

@torch.library.register_fake("torchvision::nms")
def _(dets, scores, iou_threshold):
    return dets
"""
TRY = """
import sys
sys.path.insert(0, {folder!r})
from encoders.torchvision_operators import declare_torchvision_operators
try:
    import torchvision
    print("imports as it is")
except RuntimeError as error:
    print(error)
declared = declare_torchvision_operators()
import torchvision
print(torchvision.__file__, declared is declare_torchvision_operators(), declared is None)
"""


def tried(folder):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", TRY.format(folder=str(folder))],
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()


def test_a_torchvision_without_its_compiled_half_imports_once_its_operators_are_declared(tmp_path):
    (tmp_path / "torchvision.py").write_text(BROKEN)
    first, second = tried(tmp_path)
    assert first == "operator torchvision::nms does not exist"
    assert second == f"{tmp_path / 'torchvision.py'} True False"


def test_a_torchvision_that_imports_is_left_alone(tmp_path):
    (tmp_path / "torchvision.py").write_text("")
    assert tried(tmp_path) == ["imports as it is", f"{tmp_path / 'torchvision.py'} True True"]
