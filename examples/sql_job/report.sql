-- A job in SQL alone: `spark-sql -f report.sql` with the two lines that `spark-events conf` prints in spark-defaults.conf.
-- The script does not mention spark-events. The events report its start, its failures with causes, and its outcome.
CREATE TEMPORARY VIEW payments AS
SELECT id, 10 * (id - 1000) AS amount, CASE WHEN id <> 1003 THEN 'EUR' END AS currency FROM range(1001, 1005);

SELECT currency, sum(amount) AS total FROM payments GROUP BY currency;

-- The last step fails the job if a payment cannot be booked.
SELECT id, assert_true(currency IS NOT NULL, concat('payment ', id, ' has no currency')) FROM payments;
