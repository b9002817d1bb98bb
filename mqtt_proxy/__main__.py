"""`python -m mqtt_proxy` is `lmq`."""

import sys

from mqtt_proxy.cli import main

sys.exit(main())
