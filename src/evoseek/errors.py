"""Every error a user can see, as one tree under `EvoseekError`.

A message says what was received, what is valid and what to do, in one paragraph. The command line prints the message
without a traceback and exits with status 2. A code, "index.missing" for example, identifies the mistake for programs
and tests: it stays when the text changes. `tests/errors.txt` lists the codes and their texts. `disk_text` makes the
text for an error of the operating system.
"""

import errno
import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from pydantic_core import ValidationError

_QUOTED = re.compile(r"\(os error (\d+)\)|\bOs \{ code: (\d+),")  # as libraries in Rust word the system's errors
_FULL, _CLOSED = "Free space on the disk", "Give this user access to it, or choose another place"
_BROKEN = "Check the disk, or the network file system"
_REMEDIES: Mapping[int, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EIO, errno.ESTALE, errno.EREMOTEIO, errno.ENXIO), _BROKEN),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _CLOSED),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR), "Give another name"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "Raise the limit of open files (`ulimit -n`)"),
}


class EvoseekError(Exception):
    """Root of every error that evoseek raises on purpose.

    `code` is "" if no program has to tell the mistake from others of its class.
    """

    code = ""

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        if code:
            self.code = code


class ConfigError(EvoseekError):
    """A setting is unknown, of the wrong type or contradicts another."""


class DataError(EvoseekError):
    """A question, document or data file cannot be used."""


class EmptyCorpusError(DataError):
    """No readable document was found in a corpus."""

    code = "corpus.empty"


class SearchIndexError(EvoseekError):
    """An index is missing, damaged or was made by an incompatible version."""


class PolicyError(EvoseekError):
    """A model or tokenizer cannot be loaded, or does not fit the chosen format."""


class ToolError(EvoseekError):
    """A tool, engine or judge failed. The rollout ends Invalid; it is never scored."""


class ReplyError(ToolError):
    """A model's reply is cut off, empty or not in the requested form. A retry may help."""


class CutReplyError(ReplyError):
    """A model's reply was cut off at its token limit, after `text`."""

    code = "reply.cut"

    def __init__(self, message: str, text: str = "", *, code: str = "") -> None:
        super().__init__(message, code=code)
        self.text = text


class EmptyReplyError(ReplyError):
    """A model's reply holds no text."""

    code = "reply.empty"


class PageError(EvoseekError):
    """A page that no client can read: it is gone, forbidden, or of a wrong type. The model reads the message."""


class SamplerError(EvoseekError):
    """The sampler failed, or was given a request that it cannot serve."""


class RunError(EvoseekError):
    """A run directory cannot be used as asked."""


class RunLockedError(RunError):
    """Another running process holds the lock of the run directory."""

    code = "run.locked"


class CheckpointError(EvoseekError):
    """A checkpoint is incomplete, damaged, or could not be written."""


class OtherVersionError(CheckpointError):
    """A checkpoint is complete, but in a format that this version does not read."""

    code = "checkpoint.other_version"


class AddedFileError(CheckpointError):
    """A checkpoint is complete, but contains an extra file that might be loaded in place of a saved one."""

    code = "checkpoint.added_file"


class UnreadableFileError(CheckpointError):
    """A file of a checkpoint exists, but the disk or the permissions prevent reading it."""

    code = "checkpoint.unreadable"


class TrainingError(EvoseekError):
    """Training cannot continue (for example after three non-finite steps in a row)."""


class EndedElsewhereError(TrainingError):
    """Another process of the same run failed (see its own message), or ended without reporting why."""


def is_of_disk(error: BaseException) -> bool:
    """Return whether an error is caused by a disk that is full, broken or closed to this user.

    Libraries wrap such an error in their own: as its cause, or by quoting the error number in the text.
    """
    return _of_system(error)[0] in _REMEDIES


def disk_text(error: BaseException, what: str = "") -> str:
    """Return a message: what cannot be done, the operating system's reason, and the remedy."""
    number, place = _of_system(error)
    reason = os.strerror(number) if number else str(error)
    what = what or f"{place or 'A file'} cannot be read or written"
    remedy = _REMEDIES.get(number, "Check the path, the permissions and the free space")
    return f"{what} ({reason}). {remedy}, then run the same command again: what was saved before is unchanged."


def _of_system(error: BaseException) -> tuple[int, str]:
    """Return the operating system's error number behind an error, and the file; 0 and "" if there is none."""
    if isinstance(error, OSError) and error.errno:
        return error.errno, str(error.filename or "")
    if quoted := _QUOTED.search(str(error)):
        return int(quoted[1] or quoted[2]), ""
    return _of_system(error.__cause__) if error.__cause__ is not None else (0, "")


def name_text(error: BaseException) -> str:
    """Return what is wrong with a file name that made a library raise this error; "" if the name is not the cause."""
    if isinstance(error, UnicodeEncodeError):
        shown = error.object.encode(errors="backslashreplace").decode()
        return f"The name {shown!r} is not valid UTF-8. Rename the file, or give another."
    if isinstance(error, ValueError) and str(error).endswith((" has an empty name", "embedded null byte")):
        return f"A path that was given names no file ({error}). Expected the name of a file, such as out.jsonl."
    return ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: " Did you mean X?" with the closest known name, or ""."""
    close = get_close_matches(name, list(known), 1)
    return f" Did you mean {close[0]}?" if close else ""


def first_problem(error: OSError | ValueError) -> str:
    """Return why a file is not valid; for a `ValidationError`, its first problem and where it is."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if not isinstance(error, ValidationError):
        return str(error)
    problem = error.errors()[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'the whole'}: {problem['msg']}"
