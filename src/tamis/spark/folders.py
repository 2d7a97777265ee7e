"""A folder of this user in the system's temporary one, which others write to as well."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from tamis.errors import StorageError


def private_folder() -> Path:
    """Made if it is not there. What lies in it is run and mapped: nobody else may write there."""
    folder = Path(tempfile.gettempdir()) / f"tamis-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not is_private or found.st_uid != os.getuid():
        raise StorageError(
            f"{folder} must be a folder of user {os.getuid()} with the mode drwx------, not of "
            f"user {found.st_uid} with {stat.filemode(found.st_mode)}; remove it, or set TMPDIR to "
            "another folder"
        )
    return folder
