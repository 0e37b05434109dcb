"""Bad input gets a clear error and loses nothing: where each kind of it is tried.

Tests of this folder end with the check that the checkpoint of before is still the latest and loads bit-equal (the
`kept` fixture). Tests elsewhere try the same refusal at more places.

bad input                                   | tried by
wrong or expired token                      | test_bad_requests.py::test_a_wrong_or_expired_token
  on every route                            | tests/integration/service/test_access_over_http.py::test_E194_no_route_answers_without_a_valid_token
unknown project                             | test_bad_requests.py::test_an_unknown_project
a repeated save of the same content         | test_bad_saves.py::test_a_repeated_manifest
  while it is open                          | tests/unit/service/checkpoints/test_manifests.py::test_E164_the_same_manifest_again_is_answered_with_the_present_state
a repeated save of other content            | test_bad_saves.py::test_a_repeated_manifest
a repeated save at another step             | test_bad_saves.py::test_E11_ranks_that_disagree_about_the_step
an attempt that is no longer current        | test_bad_saves.py::test_an_attempt_that_is_no_longer_current
  its deletes and pins                      | tests/unit/service/checkpoints/test_transitions.py::test_every_transition_needs_the_version_and_obeys_the_fence
a world size that disagrees                 | test_bad_saves.py::test_a_world_size_that_disagrees
a rank out of range                         | test_bad_saves.py::test_a_rank_out_of_range
a chunk whose bytes do not match its name   | test_bad_requests.py::test_a_chunk_whose_bytes_do_not_match
  in either half, and when present          | tests/integration/service/test_uploads.py::test_a_flipped_bit_on_the_way_is_noticed_and_may_be_sent_again
a body shorter than declared                | test_bad_requests.py::test_a_body_shorter_than_declared
  cut anywhere                              | tests/integration/service/test_uploads.py::test_a_cut_upload_stores_nothing_and_can_be_repeated
a body longer than declared                 | test_bad_requests.py::test_a_body_longer_than_declared
a body of another size than offered         | test_bad_requests.py::test_a_chunk_of_another_size_than_offered
a manifest that names unknown chunks        | test_bad_saves.py::test_a_manifest_that_names_unknown_chunks
  of another size or checksum               | tests/unit/service/checkpoints/test_manifests.py::test_E02_a_chunk_stored_with_another_size_or_checksum_does_not_count
gaps, overlaps, dtypes, shapes              | test_bad_saves.py::test_shards_that_do_not_fit_together
a late manifest of an aborted save          | test_bad_saves.py::test_a_late_manifest_of_an_aborted_save
disk full                                   | test_bad_saves.py::test_a_full_disk
  of one request                            | tests/integration/service/test_uploads.py::test_a_full_disk_is_storage_full_and_the_service_lives_on
names too long or not encodable             | test_bad_names.py::test_a_tensor_name_that_cannot_be_stored
metadata too long or not encodable          | test_bad_names.py::test_metadata_that_cannot_be_stored
run and project names                       | test_bad_names.py::test_a_run_name_that_cannot_be
a wrong shape or dtype in the state         | test_bad_loads.py::test_a_state_of_another_shape_or_dtype
  of models and optimizers                  | tests/unit/pytorch/test_restore.py::test_E206_another_shape_is_an_error_and_nothing_is_written
a manifest of a newer format version        | test_bad_saves.py::test_a_manifest_of_a_newer_version
a checkpoint of a newer format version      | test_bad_loads.py::test_a_checkpoint_of_a_newer_version
a read that fails during resume             | test_bad_loads.py::test_a_read_that_fails_during_resume
damaged bytes during a load                 | test_bad_loads.py::test_damaged_bytes
"""  # noqa: E501 - a table has a row a line

from __future__ import annotations

import re
from pathlib import Path


def test_every_test_of_the_table_exists() -> None:
    assert __doc__ is not None
    rows = [line.split("|")[1].strip() for line in __doc__.splitlines() if line.count("|") == 1][1:]
    assert len(rows) > 30
    for row in rows:
        path, _, name = row.partition("::")
        file = Path(path) if path.startswith("tests/") else Path(__file__).parent / path
        assert re.search(rf"^def {name}\(", file.read_text(), re.MULTILINE), row


def test_every_test_of_this_folder_is_in_the_table() -> None:
    assert __doc__ is not None
    for file in Path(__file__).parent.glob("test_bad_*.py"):
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE):
            assert f"{file.name}::{name}\n" in __doc__, name
