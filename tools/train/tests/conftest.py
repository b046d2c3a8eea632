"""The modules lie in the folder above; the tests need the packages `tokenizers` and `jinja2`, and those of the model PyTorch too."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
