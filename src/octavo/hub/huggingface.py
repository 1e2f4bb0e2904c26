"""Models on the Hugging Face hub: which files of a repository are the model, and fetching them."""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Protocol

from octavo.errors import DownloadError, ModelNotFoundError
from octavo.hub.cache import disk_errors, require_space, sha256_of
from octavo.hub.local import gguf_choices, part_names
from octavo.hub.names import RepoName
from octavo.hub.progress import Progress, watch_growth

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_CONNECT_TIMEOUT_S = 5.0
_FOLDER_FILES = (".json", ".jinja", ".model", ".safetensors", ".txt")
_USUAL = ("model.safetensors", "model.safetensors.index.json")
_NOT_MODEL = ("training_args", "optimizer", "adapter_")


@dataclass(frozen=True)
class RepoFile:
    """A file of a repository."""

    path: str
    size: int
    sha256: str | None = None
    """Known for large files."""
    git_id: str | None = None
    """sha1 of `blob SIZE\\0` and the content, known for small files."""


class HubClient(Protocol):
    """What is needed of the hub; in tests a folder."""

    def listing(self, repo: str, revision: str | None) -> tuple[str, list[RepoFile]]:
        """The commit that the revision stands for, and its files. Raises DownloadError or ModelNotFoundError."""
        ...

    def download(self, repo: str, commit: str, path: str, folder: Path) -> Path:
        """Fetches one file to `folder/path`, going on from what an earlier attempt left. Raises DownloadError."""
        ...


def fetch_repo(client: HubClient, name: RepoName, staging: Path, progress: Progress) -> list[Path]:
    """Fetches the files of the model into `staging`, each checked by size and hash as it arrives."""
    commit, listed = client.listing(name.repo, name.revision)
    wanted = choose_files(name, [file for file in listed if _stays_inside(file.path)])
    _forget_other_commit(staging, commit)
    total = sum(file.size for file in wanted)
    require_space(staging, total - _already_here(staging, wanted), name.repo)
    done, paths = 0, []
    for file in wanted:
        paths.append(_fetch_file(client, name.repo, commit, file, staging, _reporter(progress, file, done, total)))
        done += file.size
    progress.update(name.repo, total, total)
    shutil.rmtree(staging / ".cache")  # the client's own notes
    (staging / ".commit").unlink()
    return paths


def choose_files(name: RepoName, listed: Sequence[RepoFile]) -> list[RepoFile]:
    """The named GGUF (all its parts), else the safetensors model, else the only GGUF of the repository.

    Raises ModelNotFoundError where there is none, or several without a choice; lists them.
    """
    by_path = {file.path: file for file in listed}
    if name.file is not None:
        return _gguf_files(name, name.file, by_path)
    folder = [file for file in listed if "/" not in file.path and _belongs(file.path)]
    if "config.json" in by_path and any(file.path.endswith(".safetensors") for file in folder):
        return folder if by_path.keys().isdisjoint(_USUAL) else [file for file in folder if not _is_copy(file.path)]
    choices = gguf_choices(list(by_path))
    if len(choices) == 1:
        return _gguf_files(name, choices[0], by_path)
    if choices:
        raise ModelNotFoundError(f"{name.repo} holds several models; choose one: {_listed(name.repo, choices)}")
    raise ModelNotFoundError(
        f"{name.repo} holds no model that Octavo reads (no *.safetensors with config.json, no *.gguf)"
    )


def _stays_inside(path: str) -> bool:
    """No file of a repository may be written outside the staging folder."""
    return not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts


def _is_copy(path: str) -> bool:
    """Mistral's repositories hold their weights a second time, under names of its own."""
    return path.startswith("consolidated") and path.endswith(".safetensors")


def _belongs(path: str) -> bool:
    return path.endswith(_FOLDER_FILES) and not path.startswith(_NOT_MODEL)


def _listed(repo: str, choices: Sequence[str]) -> str:
    return ", ".join(f"{repo}:{choice}" for choice in choices)


def _gguf_files(name: RepoName, path: str, by_path: dict[str, RepoFile]) -> list[RepoFile]:
    folder, slash, file_name = path.rpartition("/")
    wanted = [folder + slash + part for part in part_names(file_name)]
    missing = [part for part in wanted if part not in by_path]
    if missing:
        choices = gguf_choices(list(by_path))
        known = f"; it has {_listed(name.repo, choices)}" if choices else "; it has no .gguf file"
        raise ModelNotFoundError(f"{name.repo} has no {', '.join(missing)}{known}")
    return [by_path[part] for part in wanted]


def _already_here(staging: Path, wanted: Sequence[RepoFile]) -> int:
    return sum(file.size for file in wanted if (staging / file.path).is_file())


def _reporter(progress: Progress, file: RepoFile, before: int, total: int) -> Callable[[int], None]:
    return lambda done: progress.update(file.path, before + min(done, file.size), total)


def _fetch_file(
    client: HubClient, repo: str, commit: str, file: RepoFile, staging: Path, report: Callable[[int], None]
) -> Path:
    target = staging / file.path
    if target.is_file() and _is_sound(target, file):
        return target
    with disk_errors(staging):
        (staging / ".cache").mkdir(exist_ok=True)
        with watch_growth(staging / ".cache", report):
            fetched = client.download(repo, commit, file.path, staging)
    if not _is_sound(fetched, file):
        fetched.unlink()
        raise DownloadError(f"{repo}/{file.path} arrived damaged (size or sha256 differ from the hub's); try again")
    return fetched


def _is_sound(path: Path, file: RepoFile) -> bool:
    if path.stat().st_size != file.size:
        return False
    if file.sha256 is not None:
        return sha256_of(path) == file.sha256
    return file.git_id is None or _git_id(path) == file.git_id


def _git_id(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _forget_other_commit(staging: Path, commit: str) -> None:
    """What an earlier attempt left is only worth keeping if it is of the same commit."""
    note = staging / ".commit"
    if not note.is_file() or note.read_text(encoding="utf-8") != commit:
        with disk_errors(staging):
            shutil.rmtree(staging)
            staging.mkdir()
            note.write_text(commit, encoding="utf-8")


@dataclass(frozen=True)
class HuggingFaceHub:
    """The hub through `huggingface_hub`: its login, mirrors and proxies are the user's."""

    endpoint: str | None = None
    """Address of the hub; None: `$HF_ENDPOINT`, else the public one."""

    def listing(self, repo: str, revision: str | None) -> tuple[str, list[RepoFile]]:
        from huggingface_hub import HfApi  # noqa: PLC0415 - takes half a second; only hub names pay it

        with _hub_errors(repo, revision):
            info = HfApi(self.endpoint).model_info(
                repo, revision=revision, timeout=_CONNECT_TIMEOUT_S, files_metadata=True
            )
        files = [RepoFile(file.rfilename, file.size or 0, *_ids(file)) for file in info.siblings or ()]
        return info.sha or revision or "main", files

    def download(self, repo: str, commit: str, path: str, folder: Path) -> Path:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415 - as above
        from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

        disable_progress_bars()
        with _hub_errors(repo, commit):
            fetched = hf_hub_download(
                repo, path, revision=commit, local_dir=folder, etag_timeout=_CONNECT_TIMEOUT_S, endpoint=self.endpoint
            )
        return Path(fetched)


def _ids(file: RepoSibling) -> tuple[str | None, str | None]:
    """sha256 of a large file, or git id of a small one (a large one's git id names its pointer, not its content)."""
    return (file.lfs.sha256, None) if file.lfs else (None, file.blob_id)


@contextmanager
def _hub_errors(repo: str, revision: str | None) -> Iterator[None]:
    """The client's exceptions (their classes changed between its versions) as errors that say what to do."""
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    try:
        yield
    except errors.GatedRepoError as error:
        raise DownloadError(f"{repo} asks for consent: accept its terms on the hub, then `hf auth login`") from error
    except errors.RevisionNotFoundError as error:
        raise ModelNotFoundError(f"{repo} has no revision {revision!r}; check the name after the @") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFoundError(f"the hub has no {repo}, or it is private: check the name, `hf auth login`") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        raise DownloadError(f"cannot reach the hub for {repo} ({reason}); check the network or HF_ENDPOINT") from error
