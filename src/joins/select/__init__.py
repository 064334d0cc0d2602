"""Compile a topology's SELECT to a plan (`joins.query.plan`), in four stages. `joins.select.compiler` runs them.

The example is `SELECT o.*, c.n FROM shop.orders o JOIN (SELECT id, upper(name) AS n FROM crm.customers) c ON c.id =
o.customer_id`.

1. **Parse** (`parser`, `tokens`) turns text into the supported shape of a query (`sql`). It refuses what cannot be
   kept correct. `rewrite` replaces subqueries in conditions and values by joins, and LIMIT by row numbers.
2. **Flatten** (`flatten`) merges subqueries and views into the outer query where possible, and expands `*`. In the
   result (`flat`) every column names its table. The example becomes `SELECT o.id, o.customer_id,
   upper("c/customers".name) AS n FROM shop.orders o JOIN crm.customers "c/customers" ON "c/customers".id =
   o.customer_id`.
3. **Bind** (`bind`) determines column types and finds the tree of tables (`tree`). Its root is the table with one row
   per result row, here `o`; the other tables are looked up from it by key. Groups, unions, many-to-many joins
   (`pairing`), joins by time (`by_time`) and row numbers (`topn`) become queries of their own. The outer query reads
   their rows (`bound`).
4. **Plan** (`compiler`, `fragment`, `placed_conditions`, `rowkey`) turns each bound tree into a fragment with numbered
   steps. It also proves that the row key is unique. The example becomes one fragment with one lookup join.
"""
