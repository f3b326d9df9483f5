import pytest

from softf1.data.examples import TextExample
from softf1.data.language import guess_language


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The train from the coast was late and we had to wait for it.", "English"),
        ("Der Zug von der Küste kam spät an, und wir mussten warten.", "other"),
        ("Il treno dalla costa era in ritardo e abbiamo dovuto aspettare.", "other"),
        ("Kereta dari pantai terlambat dan kami harus menunggu.", "other"),
        ("从海边来的火车晚点了，我们只好等。", "Chinese"),
        ("海岸からの列車が遅れたので、待つしかなかった。", "other"),
        ("12 34 !!", "other"),
    ],
)
def test_languages(text, wanted):
    assert guess_language([TextExample(text, (), 1)]) == wanted
