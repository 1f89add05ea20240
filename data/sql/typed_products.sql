-- A file that was read before has nothing to say but what had not yet become known then.
CREATE OR REPLACE TABLE typed AS
SELECT file, row, consumed::BIGINT AS priority, product_id AS identity,
    {product_id: product_id, advertiser_id: advertiser_id, title: title, description: description,
     category: nullif(levels(pieces(category, $separator)), []), image: nullif(pieces(image, '|'), []), video: video, attributes: given(attributes),
     price: try_cast(price AS FLOAT), first_seen: micros(coalesce(first_seen, known_at), $unit),
     known_at: micros(coalesce(known_at, first_seen), $unit)} AS record,
    list_filter([null_finding('product_id', product_id), id_finding('product_id', product_id), id_finding('advertiser_id', advertiser_id), time_finding('first_seen', first_seen, $unit),
        time_finding('known_at', known_at, $unit), number_finding('price', price, 0, 1e30)],
        lambda found: found IS NOT NULL) AS findings
FROM raw WHERE NOT (consumed AND coalesce(micros(coalesce(known_at, first_seen), $unit) <= $since, true));
