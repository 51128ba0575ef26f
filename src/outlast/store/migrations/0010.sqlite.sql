-- Why a worker cannot hand in outcomes; none: it can.
ALTER TABLE ol.worker ADD COLUMN trouble TEXT;
