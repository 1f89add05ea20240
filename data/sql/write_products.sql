SELECT * FROM products ORDER BY product_id;
