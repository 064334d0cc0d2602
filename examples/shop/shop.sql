-- The demo's database shop, with a few rows (docs/install.md).
CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4;
CREATE TABLE IF NOT EXISTS shop.products (id INT PRIMARY KEY, title VARCHAR(200) NOT NULL, category VARCHAR(40) NOT NULL, price DECIMAL(10,2) NOT NULL);
CREATE TABLE IF NOT EXISTS shop.orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer_id INT, product_id INT, status ENUM('new','paid','shipped','returned') NOT NULL, quantity INT UNSIGNED NOT NULL, amount DECIMAL(12,2) NOT NULL, note TEXT, created_at DATETIME(3) NOT NULL, revision INT NOT NULL);
INSERT INTO shop.products VALUES (1, 'Copper Kettle', 'kitchen', 39.90), (2, 'Oak Bench', 'garden', 129.00);
INSERT INTO shop.orders (customer_id, product_id, status, quantity, amount, note, created_at, revision) VALUES (1, 1, 'new', 1, 39.90, 'gift wrap', NOW(3), 1), (2, 2, 'paid', 2, 258.00, NULL, NOW(3), 1);
