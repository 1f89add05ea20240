-- Times without a zone are UTC on every machine.
SET TimeZone = 'UTC';
