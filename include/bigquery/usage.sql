-- SPDX-License-Identifier: Apache-2.0
-- The monthly tables of the usage as an external table of BigQuery: it reads the Parquet files in the bucket where they
-- lie, nothing is loaded or copied. Replace PROJECT, DATASET, BUCKET and PREFIX; the data set has to be in the
-- location of the bucket. Queries are billed, and not covered by the grant.
CREATE OR REPLACE EXTERNAL TABLE `PROJECT.DATASET.tpu_usage` (
  node_id STRING,
  dag_id STRING,
  run_id STRING,
  project STRING,
  zone STRING,
  accelerator_type STRING,
  chips INT64,
  tier STRING,
  provisioning STRING,
  external_ips INT64,
  allowance STRING,
  paid_reason STRING,
  requested_at TIMESTAMP,
  begins_at TIMESTAMP,
  ends_at TIMESTAMP,
  state STRING,
  estimated BOOL,
  covered BOOL,
  chip_hours NUMERIC,
  covered_chip_hours NUMERIC,
  idle_chip_hours NUMERIC,
  lost_chip_hours NUMERIC,
  artifact_bytes INT64,
  usd_per_chip_hour NUMERIC,
  list_value_usd NUMERIC,
  price_date STRING,
  price_source STRING
)
OPTIONS (
  format = 'PARQUET',
  uris = ['gs://BUCKET/PREFIX/reports/*.parquet'],
  description = 'One row per incarnation of a TPU; unknown is NULL, never 0.'
);

-- Chip-hours and list value by DAG and month:
--   SELECT dag_id, FORMAT_TIMESTAMP('%Y-%m', requested_at) AS month, SUM(covered_chip_hours) AS chip_hours,
--          SUM(covered_chip_hours * usd_per_chip_hour) AS list_value_usd, COUNTIF(list_value_usd IS NULL) AS of_unknown_price
--   FROM `PROJECT.DATASET.tpu_usage` WHERE covered GROUP BY 1, 2 ORDER BY 2, 1;
