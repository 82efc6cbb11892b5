"""Where results go and come from outside this machine: a folder, or a prefix in S3, through fsspec.

The one place where S3 is opened. Credentials, region and endpoint are those of AWS's own settings
(``AWS_ENDPOINT_URL``, ``AWS_PROFILE``, ``AWS_ACCESS_KEY_ID`` and so on).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from isoline.errors import InfraError, InputError


def is_remote(text: str) -> bool:
    """Whether a place is named by a URL: ``s3://…``; everything else is a path."""
    return "://" in text


def s3_root(url: str) -> str:
    """``bucket/prefix`` of ``s3://bucket/prefix``.

    :raises InputError: for anything else.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise InputError("not of the form s3://bucket/prefix", where=url)
    return f"{parts.netloc}/{parts.path.strip('/')}".rstrip("/")


def s3_system() -> Any:
    """S3 as an fsspec file system. What was listed is asked anew each time: others write there."""
    import s3fs

    return s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)


@contextmanager
def s3_errors(where: str) -> Iterator[None]:
    """What S3 can answer as errors of ours, in one line.

    :raises InputError: when the bucket or object is not there.
    :raises InfraError: when S3 does not answer, or refuses.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except FileNotFoundError:
        raise InputError("no such bucket or object", where=where) from None
    except (OSError, BotoCoreError, ClientError) as error:
        raise InfraError(
            f"S3 does not answer as it should: {str(error)[:200] or type(error).__name__}",
            where=where,
            remedy="AWS_ENDPOINT_URL, AWS_PROFILE or AWS_ACCESS_KEY_ID and so on say where and as whom",
        ) from None
