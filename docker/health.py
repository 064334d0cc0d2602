"""Ask the process of this container for its health: exit code 0 if `/health` answers 200, else 1 with the answer.

TAILORBIRD_HEALTH_URL is the address, by default that of the metrics port.
"""

import os
import sys
import urllib.error
import urllib.request

port = os.environ.get("TAILORBIRD_METRICS_PORT", "9464")
url = os.environ.get("TAILORBIRD_HEALTH_URL") or f"http://127.0.0.1:{port}/health"
try:
    with urllib.request.urlopen(url, timeout=4) as answer:
        print(answer.read(2000).decode())
except urllib.error.HTTPError as refused:
    sys.exit(refused.read(2000).decode())
except OSError as error:
    sys.exit(f"{url}: {error}")
