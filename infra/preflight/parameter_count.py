"""How many parameters a configuration amounts to, where no weight file says it. An estimate, and called one."""

from infra.preflight.checkpoint import Checkpoint


def estimate_parameters(model: Checkpoint) -> tuple[int, int] | None:
    """(parameters of the layers' matrices, of embedding and output), None where the configuration says too little.

    Counts attention, gated feed-forward layers (of every expert) and the two vocabulary matrices; norms and biases,
    well under a thousandth, are left out.
    """
    hidden, layers, vocabulary = model.hidden_size, model.n_layers, model.vocab_size
    heads = model.number("num_attention_heads", "n_head", "attention.head_count")
    inner = model.number("intermediate_size", "n_inner", "feed_forward_length")
    if hidden is None or layers is None or vocabulary is None or not heads:
        return None
    kv_heads = model.number("num_key_value_heads", "attention.head_count_kv") or heads
    width = model.number("head_dim", "attention.key_length") or hidden // heads
    attention = 2 * hidden * width * (heads + kv_heads)
    experts = model.number("num_experts", "n_routed_experts", "num_local_experts") or 0
    if experts:
        each = model.number("moe_intermediate_size") or inner
        shared = model.number("n_shared_experts") or 0
        feed_forward = None if each is None else 3 * hidden * each * (experts + shared)
    else:
        feed_forward = None if inner is None else 3 * hidden * inner
    if feed_forward is None:
        return None
    tied = model.config.get("tie_word_embeddings") is True
    return layers * (attention + feed_forward), vocabulary * hidden * (1 if tied else 2)
