import subprocess
import sys


def test_help_answers_without_importing_torch():
    code = (
        "import sys; from softf1.cli.main import build_parser; build_parser().format_help();"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
