"""`python -m shardkeep_service` is `shardkeep-service`."""

from shardkeep_service.cli.main import main

if __name__ == "__main__":
    main()
