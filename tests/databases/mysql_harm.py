"""An application's statements on MySQL and MariaDB, to run before and after Tailorbird attaches.

Every statement has a session. Other servers use the same interface: `statements(flavour)` returns lines, which run in a
database of their own, and each has an `Effect`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.databases.cases import Line

_TABLES = (
    "CREATE TABLE plain (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(50), b DECIMAL(10,2), c JSON, d DATETIME(6))",
    "CREATE TABLE made (id INT PRIMARY KEY, a INT, b INT AS (a * 2) STORED, c INT AS (a + 1) VIRTUAL, KEY (c))",
    "CREATE TABLE parted (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) "
    "(PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE nokey (a INT, b TEXT)",
    "CREATE TABLE nullable (a INT NULL UNIQUE, b TEXT)",
    "CREATE TABLE prefixed (a TEXT, PRIMARY KEY (a(10)))",
    "CREATE TABLE floats (f DOUBLE PRIMARY KEY, a INT)",
    "CREATE TABLE isam (id INT PRIMARY KEY, a INT) ENGINE=MyISAM",
    "CREATE TABLE mem (id INT PRIMARY KEY, a INT) ENGINE=MEMORY",
    "CREATE TABLE parent (id INT PRIMARY KEY, a INT)",
    "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE "
    "ON UPDATE CASCADE)",
    "CREATE TABLE softly (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL)",
    "CREATE TABLE logged (n INT PRIMARY KEY AUTO_INCREMENT, what TEXT)",
    "CREATE TRIGGER after_plain AFTER INSERT ON plain FOR EACH ROW INSERT INTO logged (what) VALUES (NEW.a)",
    "CREATE TRIGGER before_made BEFORE UPDATE ON made FOR EACH ROW SET NEW.a = NEW.a + 1",
    "CREATE VIEW seen AS SELECT id, a FROM plain WHERE a IS NOT NULL",
    "CREATE PROCEDURE many(n INT) BEGIN WHILE n > 0 DO INSERT INTO plain (a) VALUES (n); SET n = n - 1; END WHILE; END",
    "CREATE TABLE `order details` (`größe` INT PRIMARY KEY, `it's` TEXT)",
)
_ROWS = (
    "INSERT INTO plain (a, b, c, d) VALUES ('x', 1.5, '{\"a\": 1}', '2020-01-01 10:00:00.5'), ('y', NULL, '[]', NULL)",
    "INSERT INTO made (id, a) VALUES (1, 1), (2, 2), (3, NULL)",
    "INSERT INTO parted VALUES (1, 1), (99, 2), (100, 3), (1000, 4)",
    "INSERT INTO nokey VALUES (1, 'a'), (1, 'a'), (NULL, NULL)",
    "INSERT INTO nullable VALUES (NULL, 'a'), (NULL, 'b'), (1, 'c')",
    "INSERT INTO prefixed VALUES ('abc'), ('def')",
    "INSERT INTO floats VALUES (0.1, 1), (-0.0, 2)",
    "INSERT INTO isam VALUES (1, 1), (2, 2)",
    "INSERT INTO mem VALUES (1, 1)",
    "INSERT INTO parent VALUES (1, 1), (2, 2), (3, 3)",
    "INSERT INTO child VALUES (1, 1), (2, 1), (3, 2)",
    "INSERT INTO softly VALUES (1, 1), (2, 2)",
    "INSERT INTO `order details` VALUES (1, 'one')",
)
_CHANGES = (
    "UPDATE plain SET b = b + 1 WHERE id = 1",
    "UPDATE plain SET c = JSON_SET(c, '$.b', 2)",
    "DELETE FROM plain WHERE id = 2",
    "REPLACE INTO plain (id, a) VALUES (1, 'replaced')",
    "INSERT INTO plain (id, a) VALUES (1, 'z') ON DUPLICATE KEY UPDATE a = CONCAT(a, '!')",
    "INSERT IGNORE INTO plain (id, a) VALUES (1, 'ignored')",
    "INSERT INTO plain (a) SELECT a FROM plain",
    "INSERT INTO plain (id, a) VALUES (1, 'duplicate')",
    "UPDATE made SET a = 5",
    "UPDATE made SET id = 10 WHERE id = 1",
    "INSERT INTO made (id, b) VALUES (9, 9)",
    "UPDATE parted SET id = id + 500 WHERE id < 100",
    "DELETE FROM parted LIMIT 1",
    "UPDATE nokey SET b = 'changed' LIMIT 1",
    "DELETE FROM nokey WHERE a = 1 LIMIT 1",
    "UPDATE nullable SET b = 'n'",
    "UPDATE prefixed SET a = CONCAT(a, 'x')",
    "UPDATE floats SET f = f + 0.5",
    "UPDATE isam SET a = a + 1",
    "DELETE FROM isam WHERE id = 2",
    "UPDATE mem SET a = 2",
    "UPDATE parent SET id = 20 WHERE id = 2",
    "DELETE FROM parent WHERE id = 1",
    "INSERT INTO child VALUES (50, 777)",
    "SELECT * FROM seen ORDER BY id",
    "UPDATE seen SET a = 'by view' WHERE id = 1",
    "CALL many(3)",
    "UPDATE `order details` SET `it's` = 'two'",
    "UPDATE plain, logged SET plain.a = 'both', logged.what = 'both' WHERE plain.id = 1 AND logged.n = 1",
    "DELETE plain, logged FROM plain JOIN logged ON plain.id = logged.n WHERE plain.id = 3",
    "SELECT COUNT(*) FROM plain FOR UPDATE",
    "SELECT GET_LOCK('app', 1), RELEASE_LOCK('app')",
)
_TRANSACTIONS = (
    (1, "BEGIN"),
    (1, "INSERT INTO plain (id, a) VALUES (500, 'one')"),
    (2, "BEGIN"),
    (2, "INSERT INTO plain (id, a) VALUES (600, 'two')"),
    (1, "SAVEPOINT s"),
    (1, "UPDATE plain SET a = 'gone' WHERE id = 500"),
    (1, "ROLLBACK TO SAVEPOINT s"),
    (1, "UPDATE isam SET a = 100"),
    (1, "ROLLBACK"),
    (2, "UPDATE isam SET a = 50"),
    (2, "COMMIT"),
    (1, "SET autocommit = 0"),
    (1, "DELETE FROM floats"),
    (1, "ROLLBACK"),
    (1, "UPDATE floats SET a = 9"),
    (1, "COMMIT"),
    (1, "SET autocommit = 1"),
    (1, "LOCK TABLES plain WRITE, logged WRITE"),
    (1, "INSERT INTO plain (a) VALUES ('locked')"),
    (1, "UNLOCK TABLES"),
    (1, "LOCK TABLES plain READ"),
    (1, "SELECT COUNT(*) FROM plain"),
    (1, "UNLOCK TABLES"),
    (1, "FLUSH TABLES WITH READ LOCK"),
    (1, "UNLOCK TABLES"),
    (1, "CREATE TEMPORARY TABLE tmp (a INT) "),
    (1, "BEGIN"),
    (1, "INSERT INTO tmp VALUES (1)"),
    (1, "INSERT INTO plain (a) SELECT a FROM tmp"),
    (1, "ROLLBACK"),
    (1, "DROP TEMPORARY TABLE tmp"),
    (1, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE"),
    (1, "BEGIN"),
    (1, "SELECT COUNT(*) FROM made"),
    (1, "UPDATE made SET a = 6 WHERE id = 2"),
    (1, "COMMIT"),
    (1, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"),
    (1, "START TRANSACTION WITH CONSISTENT SNAPSHOT"),
    (2, "INSERT INTO parted VALUES (7, 7)"),
    (1, "SELECT COUNT(*) FROM parted WHERE id = 7"),
    (1, "COMMIT"),
    (1, "SET SESSION binlog_row_image = 'MINIMAL'"),
    (1, "UPDATE parent SET a = 100"),
    (1, "SET SESSION binlog_row_image = 'FULL'"),
)
_ALTERATIONS = (
    "ALTER TABLE plain ADD COLUMN e INT DEFAULT 5",
    "INSERT INTO plain (a, e) VALUES ('e', 6)",
    "ALTER TABLE plain DROP COLUMN d",
    "ALTER TABLE plain MODIFY b DOUBLE",
    "ALTER TABLE plain ADD INDEX (a)",
    "ALTER TABLE made DROP COLUMN c",
    "ALTER TABLE nokey ADD COLUMN id INT PRIMARY KEY AUTO_INCREMENT",
    "ALTER TABLE nokey DROP COLUMN id",
    "ALTER TABLE parted TRUNCATE PARTITION p0",
    "ALTER TABLE parted REORGANIZE PARTITION p1 INTO "
    "(PARTITION p1 VALUES LESS THAN (500), PARTITION p2 VALUES LESS THAN MAXVALUE)",
    "ALTER TABLE parted DROP PARTITION p2",
    "CREATE TABLE other LIKE plain",
    "RENAME TABLE plain TO old, other TO plain, old TO other",
    "CREATE TABLE copied AS SELECT * FROM other",
    "TRUNCATE TABLE other",
    "DROP TABLE other",
    "ALTER TABLE isam ENGINE=InnoDB",
    "OPTIMIZE TABLE made",
    "ANALYZE TABLE made",
    "ALTER TABLE floats DROP PRIMARY KEY",
    "DROP TABLE child",
    "CREATE USER IF NOT EXISTS 'harmless'@'%' IDENTIFIED BY 'x'",
    "DROP USER 'harmless'@'%'",
    "FLUSH BINARY LOGS",
    "DROP TRIGGER after_plain",
    "DROP PROCEDURE many",
    "DROP VIEW seen",
)


def _xa(maria: bool) -> Iterator[tuple[int, str]]:
    yield from (
        (1, "XA START 'h1'"),
        (1, "INSERT INTO plain (a) VALUES ('xa')"),
        (1, "XA END 'h1'"),
        (1, "XA PREPARE 'h1'"),
        (2, "XA START 'h2'"),
        (2, "INSERT INTO parent VALUES (900, 1)"),
        (2, "XA END 'h2'"),
        (2, "XA COMMIT 'h2' ONE PHASE"),
        (1, "XA COMMIT 'h1'"),
        (1, "XA START 'h3'"),
        (1, "DELETE FROM parent WHERE id = 900"),
        (1, "XA END 'h3'"),
        (1, "XA PREPARE 'h3'"),
        (1, "XA ROLLBACK 'h3'"),
    )
    if maria:
        yield from (
            (1, "CREATE SEQUENCE numbers"),
            (1, "SELECT NEXTVAL(numbers)"),
            (1, "CREATE TABLE history (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING"),
            (1, "INSERT INTO history VALUES (1, 1)"),
            (1, "UPDATE history SET a = 2"),
            (1, "CREATE TABLE aria (id INT PRIMARY KEY, a INT) ENGINE=Aria"),
            (1, "INSERT INTO aria VALUES (1, 1)"),
            (1, "UPDATE aria SET a = 2"),
            (1, "DELETE FROM history"),
        )


def statements(maria: bool) -> list[Line]:
    """Return all statements, in order, each with its session."""
    parts = [*((0, sql) for sql in (*_TABLES, *_ROWS, *_CHANGES)), *_TRANSACTIONS, *_xa(maria)]
    return [
        Line(session, sql) for session, sql in (*parts, *((0, sql) for sql in _ALTERATIONS), *((3, s) for s in _ROWS))
    ]
