"""An S3 server (moto's) that by chance refuses requests, delays them, or loses answers.

A refused request has no effect; one whose answer is lost has: both are answered by 503, and the client
asks again, so that a put that took effect is made twice. The server lives as long as its process.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Self

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

REFUSED, DELAYED, LOST = "refused", "delayed", "answer lost"
_BUSY = (
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code>"
    b"<Message>Please reduce your request rate.</Message></Error>"
)


class MisbehavingS3:
    """`with MisbehavingS3(share) as store: …`; each of the three happens to `share` of the requests.

    `options`: how to reach its bucket `lake`. `done`: what it did, by kind. While it is `calm`, it does
    nothing of the kind.
    """

    def __init__(self, share: float, seed: int = 0) -> None:
        self.share, self.calm = share, False
        self.done: Counter[str] = Counter()
        self._chance, self._turn = random.Random(seed), threading.Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": f"http://127.0.0.1:{self._server.server_port}",
            "access_key_id": "made",
            "secret_access_key": "up",
            "region": "us-east-1",
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same for a process that opens the store by its URL alone."""
        return {f"AWS_{name.upper()}": value for name, value in self.options.items()}

    def __enter__(self) -> Self:
        import urllib.request

        self._thread.start()
        self.calm = True
        url = f"{self.options['endpoint']}/lake"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT")):
            self.calm = False
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        kind = self._draw()
        if kind == DELAYED:
            time.sleep(0.3)
        if kind == REFUSED:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        elif kind == LOST:
            list(self._app(environ, lambda *_, **__: None))
        else:
            return self._app(environ, start_response)  # type: ignore[no-any-return]
        start_response(
            "503 Service Unavailable",
            [("Content-Type", "application/xml"), ("Content-Length", str(len(_BUSY)))],
        )
        return [_BUSY]

    def _draw(self) -> str:
        with self._turn:
            if self.calm:
                return ""
            number = self._chance.random()
            for kind in (REFUSED, DELAYED, LOST):
                if number < self.share:
                    self.done[kind] += 1
                    return kind
                number -= self.share
            return ""
