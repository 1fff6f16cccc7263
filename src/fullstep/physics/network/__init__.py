"""The network of a training step: what ranks exchange, exactly; what that costs on a fabric; and what a network must carry."""
