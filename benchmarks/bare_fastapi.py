"""A FastAPI route that answers a constant, on the server that the broker has: HTTP's own price.

`python -m benchmarks.bare_fastapi PORT`
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI

app = FastAPI()


@app.post("/topics/{topic}/messages")
async def constant() -> dict[str, int]:
    return {"message_id": 7, "partition": 0, "offset": 7, "timestamp": 1700000000000}


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
