-- A real catalogue and what simulated people did on it, as the contract's tables.
INSERT INTO events BY NAME SELECT * FROM simulated_events;
INSERT INTO products BY NAME SELECT * FROM given_products;
INSERT INTO advertisers BY NAME SELECT * FROM given_advertisers;
INSERT INTO users BY NAME SELECT * FROM simulated_users;
