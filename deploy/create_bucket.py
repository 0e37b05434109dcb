"""Makes the bucket that the service is set to use, if it is not there; run once by docker-compose.yml.

Reads the service's own variables. Where the bucket is somebody else's to make, leave this out.
"""

from __future__ import annotations

import os
import sys
from typing import Literal, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

PREFIX = "SHARDKEEP_SERVICE_S3_"


def main() -> None:
    """Ends with 0 when the bucket is there."""
    bucket, region = os.environ[f"{PREFIX}BUCKET"], os.environ.get(f"{PREFIX}REGION", "us-east-1")
    style = cast("Literal['auto', 'virtual', 'path']", os.environ.get(f"{PREFIX}ADDRESSING_STYLE", "auto"))
    client = boto3.client(
        "s3",
        endpoint_url=os.environ.get(f"{PREFIX}ENDPOINT_URL"),
        region_name=region,
        aws_access_key_id=os.environ.get(f"{PREFIX}ACCESS_KEY_ID"),
        aws_secret_access_key=os.environ.get(f"{PREFIX}SECRET_ACCESS_KEY"),
        config=Config(
            s3={"addressing_style": style},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            retries={"mode": "standard", "max_attempts": 5},
        ),
    )
    try:
        if region == "us-east-1":  # the one region that must not be named
            client.create_bucket(Bucket=bucket)
        else:
            client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})  # type: ignore[typeddict-item]
    except (client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
        print(f"bucket {bucket} is there")
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"bucket {bucket} could not be made: {error}")
    else:
        print(f"made bucket {bucket}")


if __name__ == "__main__":
    main()
