"""A service whose import starts a thread, so that it must not be forked."""

from __future__ import annotations

import threading

from tests.integration.cli.listener import main

threading.Thread(target=threading.Event().wait, daemon=True).start()

if __name__ == "__main__":
    main()
