-- An example's table, the role of its capture, and the publication. The image of PostgreSQL runs this
-- with psql when the server is created.
CREATE TABLE orders (id int PRIMARY KEY, customer text);
INSERT INTO orders VALUES (1, 'Ada');
\getenv password POSTGRES_PASSWORD
CREATE ROLE reader LOGIN REPLICATION PASSWORD :'password';
GRANT pg_read_all_data TO reader;
CREATE PUBLICATION shop FOR ALL TABLES;
