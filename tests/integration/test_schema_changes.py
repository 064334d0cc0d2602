"""Alter tables under live traffic on real servers, change the query and rebuild: HBase and Solr equal the sources."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tailorbird.operate.status.http_metrics import read_metrics
from tests.integration.alive import LivePipeline
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.mark.matrix  # single steps: tests/integration/test_alive.py, tests/cases/joins/column-*.case
def test_columns_are_added_changed_and_dropped_under_traffic(
    unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """ADD COLUMN used after `--rebuild`, MODIFY of a used column, DROP while the join runs.

    Only values that the old type can not hold are dead letters, the drift is reported, and after the rebuild all is
    equal.
    """
    one = LivePipeline(unique("altered"), tmp_path_factory.mktemp("altered"), orders=2_000)

    def metrics() -> dict[str, float]:
        (join,) = [part for part in one.pipeline.parts if part.stage == "join"]
        (port,) = join.serves.values()
        return read_metrics(port)

    try:
        one.sql("shop", "ALTER TABLE products ADD COLUMN short_lived INT")
        one.more = ", p.short_lived"
        one.declare()
        with one.traffic(60) as more:
            one.pipeline.start()
            one.must_join()
            more(200)
            one.sql("shop", "ALTER TABLE orders ADD COLUMN channel VARCHAR(9) NOT NULL DEFAULT 'web'")
            one.sql(
                "shop", "ALTER TABLE products MODIFY price DECIMAL(8,3)", "UPDATE products SET price = 9.125 LIMIT 5"
            )
            one.sql("shop", "ALTER TABLE products DROP COLUMN short_lived", "DELETE FROM products ORDER BY id LIMIT 5")
            one.sql("shop", "UPDATE orders SET channel = 'shop' ORDER BY id LIMIT 50")
            wait_for(lambda: metrics().get("tailorbird_join_drifted_columns", 0) == 2, "the drift is not reported", 60)
            wait_for(lambda: metrics().get("tailorbird_dead_letters_total", 0) >= 5, "9.125 became another price", 60)
            more(200)
            one.joined("--rebuild", more=", o.channel")
            more(200)
        assert one.settled() == {}
        assert metrics().get("tailorbird_dead_letters_total", 0) == 0
        assert metrics()["tailorbird_join_drifted_columns"] == 0
    finally:
        one.close()
