"""A small model's job under two plans, for fake workers
(tests/fakes/fake_worker.cc): *pipeline*, one device a stage, which leaves
devices waiting for each other, and *wide*, every stage on all devices."""

DEVICES = 8
# Milliseconds of a micro-batch.
COSTS = """layer,forward_ms,recompute_ms,backward_ms
0,10,10,20
1,10,10,20
2,10,10,20
3,10,10,20
4,5,0,10
"""
SPEC = {"model_name_or_path": "model", "dataset": "train.jsonl",
        "max_length": 16, "batch_size": 8, "micro_batch_size": 1,
        "micro_batches_per_round": 8, "gradient_groups": 8, "save_steps": 0}
EACH = {"forward": [[0, 0], [1, 1], [2, 2]],
        "backward": [[3, 4], [2, 2], [1, 1], [0, 0]]}
PLANS = {"pipeline": EACH,
         "wide": {**EACH, "forward_width": [[1] * DEVICES] * 3,
                  "backward_width": [[1] * DEVICES] * 4}}
