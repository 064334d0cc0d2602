"""Databases in the shapes that people try first: a rental shop, a music shop, a trader. DDL and rows are our own.

They contain the hard cases: cascades, geometry, views, tables without key, enums, sets, composite keys,
self-references, cycles, names with spaces, capitals and SQL's words, blobs, secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc.model.schema import TableId, TableSchema
from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import Dialect
from ingest.ddl.statements import apply
from tailorbird.deploy.draft.shape import FoundServer, FoundTable, Reference, rules_of

Cell = str | int | None
_DIALECT = Dialect(server="mysql", version=80045)


class Raw(str):
    """An SQL expression instead of a value of a row."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class SampleDatabase:
    """A database: the bodies of its CREATE TABLE statements, its foreign keys, views and rows.

    A foreign key is (child, columns, parent, referenced, the actions on delete and update).
    """

    name: str
    tables: Mapping[str, str]
    keys: tuple[tuple[str, str, str, str, str], ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, list[dict[str, Cell]]] = field(default_factory=dict)

    def statements(self) -> list[str]:
        """Return the statements that create it in an empty database."""
        found = []
        for table, body in self.tables.items():
            found.append(f"CREATE TABLE `{table}` ({body}) ENGINE={self.engines.get(table, 'InnoDB')}")
        for table, rows in self.rows.items():
            names = ", ".join(f"`{name}`" for name in rows[0])
            values = ", ".join("(" + ", ".join(_literal(cell) for cell in row.values()) + ")" for row in rows)
            found.append(f"INSERT INTO `{table}` ({names}) VALUES {values}")
        for child, columns, parent, referenced, does in self.keys:
            found.append(
                f"ALTER TABLE `{child}` ADD FOREIGN KEY ({_quoted(columns)}) REFERENCES `{parent}` "
                f"({_quoted(referenced)}) {does}"
            )
        found += [f"CREATE VIEW `{view}` AS {select}" for view, select in self.views.items()]
        return found

    def found(self, source: str = "") -> FoundServer:
        """Return what `mysql_shape` would read of it, without a server."""
        catalog = Catalog().with_database(self.name, "utf8mb4", "utf8mb4_0900_ai_ci")
        source = source or self.name
        tables = []
        for table, body in self.tables.items():
            catalog = apply(catalog, f"CREATE TABLE `{table}` ({body})", database=self.name, dialect=_DIALECT).catalog
            table_id = TableId(source=source, database=self.name, table=table)
            definition = catalog.tables[self.name, table]
            rows = self.rows.get(table, [])
            tables.append(
                FoundTable(
                    schema=definition.schema(table_id, 1),
                    keys=definition.keys,
                    engine=self.engines.get(table, "InnoDB"),
                    count=len(rows),
                    rows=tuple({name: _reported(cell) for name, cell in row.items()} for row in rows),
                )
            )
        for view in self.views:
            table_id = TableId(source=source, database=self.name, table=view)
            schema = TableSchema(table_id=table_id, version=1, columns=(), primary_key=())
            tables.append(FoundTable(schema=schema, kind="VIEW", engine="none"))
        tables.sort(key=lambda table: table.name)
        references = []
        for child, columns, parent, referenced, does in self.keys:
            deleted, _, updated = does.partition("ON UPDATE ")
            references.append(
                Reference(
                    child=TableId(source=source, database=self.name, table=child),
                    columns=tuple(columns.split(", ")),
                    parent=TableId(source=source, database=self.name, table=parent),
                    referenced=tuple(referenced.split(", ")),
                    rules=rules_of(deleted.replace("ON DELETE", "").strip(), updated.strip()),
                )
            )
        return FoundServer(
            source=source,
            kind="mysql",
            hostname="127.0.0.1",
            port=3307,
            username="cdc",
            password_env=f"{source.upper()}_PASSWORD",
            database=self.name,
            tables=tuple(tables),
            references=tuple(references),
        )


def _quoted(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def _literal(cell: Cell) -> str:
    if cell is None:
        return "NULL"
    return str(cell) if isinstance(cell, int | Raw) else "'" + cell.replace("'", "''") + "'"


def _reported(cell: Cell) -> str | None:
    return None if cell is None else str(cell)


def _times(number: int) -> str:
    return f"2026-{number % 12 + 1:02}-{number % 28 + 1:02} {number % 24:02}:{number % 60:02}:00"


_CHANGED = "last_update TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"


def rental() -> SampleDatabase:
    """Return the shape of sakila: a cycle of stores and staff, geometry, enum and set, a view, two paths to one
    table."""
    countries, cities, films = ["Peru", "Chad", "Oman", "Mali"], 8, 24
    rows: dict[str, list[dict[str, Cell]]] = {
        "country": [{"country_id": n + 1, "country": name} for n, name in enumerate(countries)],
        "city": [{"city_id": n, "city": f"City {n}", "country_id": n % 4 + 1} for n in range(1, cities + 1)],
        "address": [
            {
                "address_id": n, "address": f"{n} Long Street", "district": f"District {n % 5}",
                "city_id": n % cities + 1, "postal_code": f"{10_000 + n}", "phone": f"+51 {n:06}",
                "location": Raw(f"ST_GeomFromText('POINT({n} 2)')"),
            }
            for n in range(1, 21)
        ],
        "language": [{"language_id": n + 1, "name": name} for n, name in enumerate(["English", "Quechua", "Arabic"])],
        "film": [
            {
                "film_id": n, "title": f"The Film {n}", "description": f"A tale of {n} birds", "release_year": 1990 + n,
                "language_id": n % 3 + 1, "original_language_id": None if n % 4 else 2, "rental_rate": f"{n % 5}.99",
                "rating": ["G", "PG", "R"][n % 3], "special_features": ["Trailers", "Trailers,Commentaries"][n % 2],
            }
            for n in range(1, films + 1)
        ],
        "category": [{"category_id": n, "name": f"Category {n}"} for n in range(1, 5)],
        "film_category": [{"film_id": n, "category_id": n % 4 + 1} for n in range(1, films + 1)],
        "store": [{"store_id": n, "manager_staff_id": n, "address_id": n} for n in (1, 2)],
        "staff": [
            {
                "staff_id": n, "first_name": f"Ann {n}", "last_name": "Lee", "address_id": n + 2, "store_id": n,
                "picture": Raw("X'00ff'"), "email": f"ann{n}@shop.example", "active": 1, "username": f"ann{n}",
                "password": "hunter2",
            }
            for n in (1, 2)
        ],
        "customer": [
            {
                "customer_id": n, "store_id": n % 2 + 1, "first_name": f"Bo {n}", "last_name": f"Kay {n}",
                "email": None if n % 7 == 0 else f"bo{n}@mail.example", "address_id": n % 20 + 1, "active": n % 2,
                "create_date": _times(n),
            }
            for n in range(1, 31)
        ],
        "inventory": [{"inventory_id": n, "film_id": n % films + 1, "store_id": n % 2 + 1} for n in range(1, 41)],
        "rental": [
            {
                "rental_id": n, "rental_date": _times(n), "inventory_id": n % 40 + 1, "customer_id": n % 30 + 1,
                "return_date": None if n % 5 == 0 else _times(n + 1), "staff_id": n % 2 + 1,
            }
            for n in range(1, 61)
        ],
        "payment": [
            {
                "payment_id": n, "customer_id": n % 30 + 1, "staff_id": n % 2 + 1,
                "rental_id": None if n % 9 == 0 else n % 60 + 1, "amount": f"{n % 11}.99",
                "payment_date": _times(n + 2),
            }
            for n in range(1, 91)
        ],
    }  # fmt: skip
    return SampleDatabase(
        name="rental",
        tables={
            "country": f"country_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, country VARCHAR(50) NOT NULL, {_CHANGED}",
            "city": "city_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, city VARCHAR(50) NOT NULL, "
            f"country_id SMALLINT UNSIGNED NOT NULL, {_CHANGED}",
            "address": "address_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, address VARCHAR(50) NOT NULL, "
            "address2 VARCHAR(50), district VARCHAR(20) NOT NULL, city_id SMALLINT UNSIGNED NOT NULL, "
            f"postal_code VARCHAR(10), phone VARCHAR(20) NOT NULL, location GEOMETRY NOT NULL, {_CHANGED}",
            "language": f"language_id TINYINT UNSIGNED NOT NULL PRIMARY KEY, name CHAR(20) NOT NULL, {_CHANGED}",
            "film": "film_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, title VARCHAR(128) NOT NULL, description TEXT, "
            "release_year YEAR, language_id TINYINT UNSIGNED NOT NULL, original_language_id TINYINT UNSIGNED, "
            "rental_rate DECIMAL(4,2) NOT NULL DEFAULT 4.99, rating ENUM('G','PG','PG-13','R','NC-17') DEFAULT 'G', "
            "special_features SET('Trailers','Commentaries','Deleted Scenes'), " + _CHANGED,
            "category": f"category_id TINYINT UNSIGNED NOT NULL PRIMARY KEY, name VARCHAR(25) NOT NULL, {_CHANGED}",
            "film_category": "film_id SMALLINT UNSIGNED NOT NULL, category_id TINYINT UNSIGNED NOT NULL, "
            f"{_CHANGED}, PRIMARY KEY (film_id, category_id)",
            "store": "store_id TINYINT UNSIGNED NOT NULL PRIMARY KEY, manager_staff_id TINYINT UNSIGNED NOT NULL, "
            f"address_id SMALLINT UNSIGNED NOT NULL, {_CHANGED}",
            "staff": "staff_id TINYINT UNSIGNED NOT NULL PRIMARY KEY, first_name VARCHAR(45) NOT NULL, "
            "last_name VARCHAR(45) NOT NULL, address_id SMALLINT UNSIGNED NOT NULL, picture BLOB, email VARCHAR(50), "
            "store_id TINYINT UNSIGNED NOT NULL, active BOOLEAN NOT NULL DEFAULT TRUE, username VARCHAR(16) NOT NULL, "
            f"password VARCHAR(40) COLLATE utf8mb4_bin, {_CHANGED}",
            "customer": "customer_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, store_id TINYINT UNSIGNED NOT NULL, "
            "first_name VARCHAR(45) NOT NULL, last_name VARCHAR(45) NOT NULL, email VARCHAR(50), "
            "address_id SMALLINT UNSIGNED NOT NULL, active BOOLEAN NOT NULL DEFAULT TRUE, "
            "create_date DATETIME NOT NULL, last_update TIMESTAMP NULL",
            "inventory": "inventory_id MEDIUMINT UNSIGNED NOT NULL PRIMARY KEY, film_id SMALLINT UNSIGNED NOT NULL, "
            f"store_id TINYINT UNSIGNED NOT NULL, {_CHANGED}",
            "rental": "rental_id INT NOT NULL PRIMARY KEY, rental_date DATETIME NOT NULL, "
            "inventory_id MEDIUMINT UNSIGNED NOT NULL, customer_id SMALLINT UNSIGNED NOT NULL, return_date DATETIME, "
            f"staff_id TINYINT UNSIGNED NOT NULL, {_CHANGED}, UNIQUE KEY (rental_date, inventory_id, customer_id)",
            "payment": "payment_id SMALLINT UNSIGNED NOT NULL PRIMARY KEY, customer_id SMALLINT UNSIGNED NOT NULL, "
            "staff_id TINYINT UNSIGNED NOT NULL, rental_id INT, amount DECIMAL(5,2) NOT NULL, "
            "payment_date DATETIME NOT NULL, last_update TIMESTAMP NULL",
            "log_of_clicks": "at DATETIME NOT NULL, said TEXT",
        },
        keys=(
            ("city", "country_id", "country", "country_id", "ON DELETE RESTRICT ON UPDATE CASCADE"),
            ("address", "city_id", "city", "city_id", "ON DELETE RESTRICT ON UPDATE CASCADE"),
            ("film", "language_id", "language", "language_id", "ON UPDATE CASCADE"),
            ("film", "original_language_id", "language", "language_id", "ON UPDATE CASCADE"),
            ("film_category", "film_id", "film", "film_id", "ON DELETE CASCADE"),
            ("film_category", "category_id", "category", "category_id", ""),
            ("store", "manager_staff_id", "staff", "staff_id", ""),
            ("store", "address_id", "address", "address_id", ""),
            ("staff", "store_id", "store", "store_id", ""),
            ("staff", "address_id", "address", "address_id", ""),
            ("customer", "address_id", "address", "address_id", "ON DELETE RESTRICT"),
            ("customer", "store_id", "store", "store_id", ""),
            ("inventory", "film_id", "film", "film_id", ""),
            ("inventory", "store_id", "store", "store_id", ""),
            ("rental", "inventory_id", "inventory", "inventory_id", ""),
            ("rental", "customer_id", "customer", "customer_id", "ON DELETE CASCADE"),
            ("rental", "staff_id", "staff", "staff_id", ""),
            ("payment", "rental_id", "rental", "rental_id", "ON DELETE SET NULL ON UPDATE CASCADE"),
            ("payment", "customer_id", "customer", "customer_id", ""),
            ("payment", "staff_id", "staff", "staff_id", ""),
        ),
        views={"customer_list": "SELECT customer_id, first_name FROM customer"},
        rows=rows,
    )


def music() -> SampleDatabase:
    """Return the shape of chinook: capitalized names, an employee who reports to another, a key of two columns."""
    rows: dict[str, list[dict[str, Cell]]] = {
        "Artist": [{"ArtistId": n, "Name": f"The Band {n}"} for n in range(1, 8)],
        "Album": [{"AlbumId": n, "Title": f"Record {n}", "ArtistId": n % 7 + 1} for n in range(1, 13)],
        "Genre": [{"GenreId": n + 1, "Name": name} for n, name in enumerate(["Rock", "Jazz", "Folk"])],
        "Employee": [
            {
                "EmployeeId": n, "LastName": f"Lee {n}", "FirstName": "Kim", "Title": ["Boss", "Agent"][n > 1],
                "ReportsTo": None if n == 1 else 1, "BirthDate": "1980-01-01 00:00:00", "HireDate": _times(n),
            }
            for n in range(1, 5)
        ],
        "Customer": [
            {
                "CustomerId": n, "FirstName": f"Ute {n}", "LastName": f"Roe {n}", "Country": ["Peru", "Chad"][n % 2],
                "Email": f"ute{n}@mail.example", "SupportRepId": None if n % 6 == 0 else n % 4 + 1,
            }
            for n in range(1, 41)
        ],
        "Track": [
            {
                "TrackId": n, "Name": f"Song {n}", "AlbumId": n % 12 + 1, "GenreId": n % 3 + 1,
                "Milliseconds": 1000 * n, "UnitPrice": "0.99",
            }
            for n in range(1, 51)
        ],
        "Invoice": [
            {"InvoiceId": n, "CustomerId": n % 40 + 1, "InvoiceDate": _times(n), "Total": f"{n}.50"}
            for n in range(1, 41)
        ],
        "InvoiceLine": [
            {"InvoiceLineId": n, "InvoiceId": n % 40 + 1, "TrackId": n % 50 + 1, "UnitPrice": "0.99", "Quantity": n % 3}
            for n in range(1, 81)
        ],
        "Playlist": [{"PlaylistId": n, "Name": f"Mix {n}"} for n in range(1, 4)],
        "PlaylistTrack": [{"PlaylistId": n % 3 + 1, "TrackId": n} for n in range(1, 31)],
    }  # fmt: skip
    return SampleDatabase(
        name="Music",
        tables={
            "Artist": "ArtistId INT NOT NULL PRIMARY KEY, Name VARCHAR(120)",
            "Album": "AlbumId INT NOT NULL PRIMARY KEY, Title VARCHAR(160) NOT NULL, ArtistId INT NOT NULL",
            "Genre": "GenreId INT NOT NULL PRIMARY KEY, Name VARCHAR(120)",
            "Employee": "EmployeeId INT NOT NULL PRIMARY KEY, LastName VARCHAR(20) NOT NULL, FirstName VARCHAR(20) "
            "NOT NULL, Title VARCHAR(30), ReportsTo INT, BirthDate DATETIME, HireDate DATETIME",
            "Customer": "CustomerId INT NOT NULL PRIMARY KEY, FirstName VARCHAR(40) NOT NULL, LastName VARCHAR(20) "
            "NOT NULL, Country VARCHAR(40), Email VARCHAR(60) NOT NULL, SupportRepId INT",
            "Track": "TrackId INT NOT NULL PRIMARY KEY, Name VARCHAR(200) NOT NULL, AlbumId INT, GenreId INT, "
            "Milliseconds INT NOT NULL, UnitPrice NUMERIC(10,2) NOT NULL",
            "Invoice": "InvoiceId INT NOT NULL PRIMARY KEY, CustomerId INT NOT NULL, InvoiceDate DATETIME NOT NULL, "
            "Total NUMERIC(10,2) NOT NULL",
            "InvoiceLine": "InvoiceLineId INT NOT NULL PRIMARY KEY, InvoiceId INT NOT NULL, TrackId INT NOT NULL, "
            "UnitPrice NUMERIC(10,2) NOT NULL, Quantity INT NOT NULL",
            "Playlist": "PlaylistId INT NOT NULL PRIMARY KEY, Name VARCHAR(120)",
            "PlaylistTrack": "PlaylistId INT NOT NULL, TrackId INT NOT NULL, PRIMARY KEY (PlaylistId, TrackId)",
        },
        keys=(
            ("Album", "ArtistId", "Artist", "ArtistId", ""),
            ("Employee", "ReportsTo", "Employee", "EmployeeId", ""),
            ("Customer", "SupportRepId", "Employee", "EmployeeId", ""),
            ("Track", "AlbumId", "Album", "AlbumId", ""),
            ("Track", "GenreId", "Genre", "GenreId", ""),
            ("Invoice", "CustomerId", "Customer", "CustomerId", ""),
            ("InvoiceLine", "InvoiceId", "Invoice", "InvoiceId", ""),
            ("InvoiceLine", "TrackId", "Track", "TrackId", ""),
            ("PlaylistTrack", "PlaylistId", "Playlist", "PlaylistId", ""),
            ("PlaylistTrack", "TrackId", "Track", "TrackId", ""),
        ),
        rows=rows,
    )


def trade() -> SampleDatabase:
    """Return the shape of northwind: text keys, a table name with a space, a table without a key, SQL's own words, a
    referenced key of two columns, a unique key that is not the primary one."""
    rows: dict[str, list[dict[str, Cell]]] = {
        "Customers": [
            {"CustomerID": f"CUS{n:02}", "CompanyName": f"Company {n}", "Country": ["Peru", "Oman", "Mali"][n % 3]}
            for n in range(1, 41)
        ],
        "Employees": [
            {
                "EmployeeID": n, "LastName": f"Ito {n}", "Photo": Raw("X'00ff'"),
                "ReportsTo": None if n == 1 else n - 1, "BirthDate": "1970-02-03",
            }
            for n in range(1, 6)
        ],
        "Shippers": [{"ShipperID": n, "CompanyName": f"Ship {n}"} for n in range(1, 4)],
        "Suppliers": [{"Country": c, "No": n, "CompanyName": f"Farm {c} {n}"} for c in ("PE", "OM") for n in (1, 2)],
        "Products": [
            {
                "ProductID": n, "ProductName": f"Tea {n}", "SupplierCountry": "PE", "SupplierNo": n % 2 + 1,
                "UnitPrice": f"{n}.2500", "Discontinued": n % 2, "Group": ["Drinks", "Food"][n % 2],
            }
            for n in range(1, 31)
        ],
        "Orders": [
            {
                "OrderID": n, "CustomerID": f"CUS{n % 40 + 1:02}", "EmployeeID": n % 5 + 1, "OrderDate": _times(n),
                "RequiredDate": _times(n + 3), "ShipVia": n % 3 + 1, "Freight": f"{n}.1000", "Ship Name": f"Dock {n}",
            }
            for n in range(1, 51)
        ],
        "Order Details": [{"OrderID": n % 50 + 1, "ProductID": n % 30 + 1, "Quantity": n % 9} for n in range(1, 51)],
        "select": [
            {"from": n, "order": n % 50 + 1, "group": n % 30 + 1, "where": f"on the shelf {n}", "when": _times(n)}
            for n in range(1, 61)
        ],
    }  # fmt: skip
    return SampleDatabase(
        name="trade-winds",
        tables={
            "Customers": "CustomerID VARCHAR(5) NOT NULL PRIMARY KEY, CompanyName VARCHAR(40) NOT NULL, "
            "Country VARCHAR(15)",
            "Employees": "EmployeeID INT NOT NULL PRIMARY KEY, LastName VARCHAR(20) NOT NULL, Photo LONGBLOB, "
            "ReportsTo INT, BirthDate DATE",
            "Shippers": "ShipperID INT NOT NULL PRIMARY KEY, CompanyName VARCHAR(40) NOT NULL",
            "Suppliers": "Country CHAR(2) NOT NULL, No INT NOT NULL, CompanyName VARCHAR(40), "
            "Code VARCHAR(9), PRIMARY KEY (Country, No), UNIQUE KEY (Code)",
            "Products": "ProductID INT NOT NULL PRIMARY KEY, ProductName VARCHAR(40) NOT NULL, "
            "SupplierCountry CHAR(2), SupplierNo INT, SupplierCode VARCHAR(9), UnitPrice DECIMAL(10,4), "
            "Discontinued BIT(1) NOT NULL, "
            "`Group` VARCHAR(20)",
            "Orders": "OrderID INT NOT NULL PRIMARY KEY, CustomerID VARCHAR(5), EmployeeID INT, OrderDate DATETIME, "
            "RequiredDate DATETIME, ShipVia INT, Freight DECIMAL(10,4), `Ship Name` VARCHAR(40)",
            "Order Details": "OrderID INT NOT NULL, ProductID INT NOT NULL, Quantity SMALLINT NOT NULL, "
            "PRIMARY KEY (OrderID, ProductID)",
            "select": "`from` INT NOT NULL PRIMARY KEY, `order` INT, `group` INT, `where` VARCHAR(60), `when` DATETIME",
            "Notes": "Said TEXT",
            "Old": "Id INT NOT NULL PRIMARY KEY",
        },
        keys=(
            ("Employees", "ReportsTo", "Employees", "EmployeeID", "ON DELETE SET NULL"),
            ("Products", "SupplierCountry, SupplierNo", "Suppliers", "Country, No", "ON UPDATE CASCADE"),
            ("Products", "SupplierCode", "Suppliers", "Code", ""),
            ("Orders", "CustomerID", "Customers", "CustomerID", ""),
            ("Orders", "EmployeeID", "Employees", "EmployeeID", "ON DELETE SET NULL"),
            ("Orders", "ShipVia", "Shippers", "ShipperID", ""),
            ("Order Details", "OrderID", "Orders", "OrderID", "ON DELETE CASCADE"),
            ("Order Details", "ProductID", "Products", "ProductID", ""),
            ("select", "order", "Orders", "OrderID", ""),
            ("select", "group", "Products", "ProductID", ""),
        ),
        views={"Alphabetical list": "SELECT ProductID, ProductName FROM Products"},
        engines={"Old": "MyISAM"},
        rows=rows,
    )


SHAPES = {"rental": rental, "music": music, "trade": trade}
