"""The folder of `headrace up`: one's own, wherever it is, and nobody else's."""

import os
from pathlib import Path

import pytest

from services.cli.home import make_folder, occupy
from services.cli.wheels import EmbeddedError


def test_a_link_of_ones_own_leads_to_the_data(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with occupy(tmp_path / "link") as home:
        assert home.path == (tmp_path / "real").resolve()
        assert home.logs.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
@pytest.mark.parametrize("part", ["real", "link"])
def test_a_link_or_folder_of_somebody_else_is_refused(tmp_path: Path, part: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    os.chown(tmp_path / part, 12345, 12345, follow_symlinks=False)
    with pytest.raises(EmbeddedError, match="somebody else"), occupy(tmp_path / "link"):
        pass
    assert list((tmp_path / "real").iterdir()) == []


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    file, nowhere = tmp_path / "file", tmp_path / "nowhere"
    file.touch()
    nowhere.symlink_to(tmp_path / "gone")
    for path in (file, file / "below", nowhere):
        with pytest.raises(EmbeddedError, match="is in the way"):
            make_folder(path)
