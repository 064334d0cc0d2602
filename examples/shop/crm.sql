-- The demo's database crm, with a few rows (docs/install.md).
CREATE DATABASE IF NOT EXISTS crm CHARACTER SET utf8mb4;
CREATE TABLE IF NOT EXISTS crm.customers (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(120) NOT NULL, country CHAR(2) NOT NULL, email VARCHAR(160));
INSERT INTO crm.customers (name, country, email) VALUES ('Ada Abbott', 'GB', 'ada@example.org'), ('Björn Schmidt', 'DE', NULL);
