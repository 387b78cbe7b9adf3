"""What a user can do something about, told in one line on standard error."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from chassis.errors import CannotStartError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def told_errors() -> Iterator[None]:
    """Ends the command with one line on standard error for what a user can do something about."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it has to say is in errors
    from cli.launched import LaunchFailedError
    from cli.target import NoTargetError
    from cli.transfer.service import TransferError

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except (NoTargetError, TransferError, CannotStartError) as error:
        fail(str(error))
    except LaunchFailedError as error:
        fail(f"the stack did not become ready:\n{error}")
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"{error.filename or 'the output'}: {error.strerror}")
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        if told := _told_of_the_api(error):
            fail(told)
        raise


def _told_of_the_api(error: Exception) -> str | None:
    """What an error of the official client tells. If it is one, its library is loaded."""
    if "anthropic" not in sys.modules:
        return None
    import anthropic

    from cli.follow import ConnectionLostError

    if isinstance(error, anthropic.APIConnectionError | ConnectionLostError):
        return f"the stack does not answer ({error}): is `drover up` running?"
    if isinstance(error, anthropic.APIStatusError):
        told = told_by(error.body) or f"{error.request.url} does not speak Drover's API"
        return f"{error.status_code}: {told}"
    return None


def told_by(body: object) -> str:
    """The message of the API's error envelope, if `body` is one."""
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else ""


def fail(message: str, code: int = 1) -> NoReturn:
    """Ends the command with a message on standard error."""
    from cli.terminal import Terminal

    Terminal(stderr=True).say(f"drover: {message}", "red")
    raise typer.Exit(code)
