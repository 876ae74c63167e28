"""A linear chain over tags: how likely one follows another is learnt with the rest (Lafferty et al. 2001).

T tokens of the packed batch, S sequences, L asked tokens of the longest of them, G groups, C labels of a group
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lexome.models.packing import Packing
from lexome.tasks.tags import Transitions
from lexome.tasks.task import NOT_ASKED


class Chain(nn.Module):
    """One group's tags: what is added for beginning with one, for ending with one, and for one after another."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.first_C = nn.Parameter(torch.zeros(labels))
        self.last_C = nn.Parameter(torch.zeros(labels))
        self.moves_CC = nn.Parameter(torch.zeros(labels, labels))

    def loss(self, logits: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """The sum of negative log likelihoods of tag sequences; one (tokens, C) and one (tokens,) of each sequence."""
        logits_SLC = pad_sequence(list(logits), batch_first=True)
        target_SL = pad_sequence(list(targets), batch_first=True)
        lengths_S = torch.tensor([len(target) for target in targets], device=target_SL.device)
        there_SL = torch.arange(target_SL.shape[1], device=target_SL.device) < lengths_S[:, None]
        return (self._all(logits_SLC, there_SL) - self._one(logits_SLC, target_SL, there_SL)).sum()

    def _one(self, logits_SLC: Tensor, target_SL: Tensor, there_SL: Tensor) -> Tensor:
        """The score of the right tags of each sequence."""
        said_SL = logits_SLC.gather(-1, target_SL[..., None])[..., 0] * there_SL
        moved_SL = self.moves_CC[target_SL[:, :-1], target_SL[:, 1:]] * there_SL[:, 1:]
        ends_S = target_SL.gather(1, there_SL.sum(1, keepdim=True) - 1)[:, 0]
        return said_SL.sum(1) + moved_SL.sum(1) + self.first_C[target_SL[:, 0]] + self.last_C[ends_S]

    def _all(self, logits_SLC: Tensor, there_SL: Tensor) -> Tensor:
        """The log of the sum over all tags of each sequence, by the forward algorithm."""
        score_SC = self.first_C + logits_SLC[:, 0]
        for place in range(1, logits_SLC.shape[1]):
            next_SC = torch.logsumexp(score_SC[:, :, None] + self.moves_CC, dim=1) + logits_SLC[:, place]
            score_SC = torch.where(there_SL[:, place, None], next_SC, score_SC)
        return torch.logsumexp(score_SC + self.last_C, dim=-1)


class Crf(nn.Module):
    """A chain for each group of labels, over the tokens of a sequence that are asked."""

    def __init__(self, groups: Sequence[int]) -> None:
        super().__init__()
        self.groups = tuple(groups)
        self.chains = nn.ModuleList(Chain(labels) for labels in groups)

    def loss(self, logits_TC: Tensor, targets_TG: Tensor, packing: Packing) -> Tensor:
        """The sum of the negative log likelihoods of all sequences in all groups."""
        total = logits_TC.new_zeros(())
        parts = zip(self.chains, torch.split(logits_TC, list(self.groups), dim=-1), targets_TG.unbind(-1), strict=True)
        for chain, part_TC, target_T in parts:
            assert isinstance(chain, Chain)
            logits, targets = _asked(part_TC, target_T, packing)
            if targets:
                total = total + chain.loss(logits, targets)
        return total

    def transitions(self) -> Transitions:
        """What was learnt, as decoding takes it. Groups are of one size."""
        chains = [chain for chain in self.chains if isinstance(chain, Chain)]
        between = torch.stack([chain.moves_CC for chain in chains])
        ends = [torch.stack([getattr(chain, name) for chain in chains]) for name in ("first_C", "last_C")]
        return Transitions(*(part.detach().double().cpu().numpy() for part in (between, *ends)))

    @torch.no_grad()
    def take(self, transitions: Transitions) -> None:
        """Go on from what another run learnt."""
        for number, chain in enumerate(self.chains):
            assert isinstance(chain, Chain)
            chain.moves_CC.copy_(torch.from_numpy(transitions.between[number]))
            chain.first_C.copy_(torch.from_numpy(transitions.first[number]))
            chain.last_C.copy_(torch.from_numpy(transitions.last[number]))


def _asked(part_TC: Tensor, target_T: Tensor, packing: Packing) -> tuple[list[Tensor], list[Tensor]]:
    """Logits and targets of each sequence's asked tokens; sequences that ask nothing are left out."""
    logits, targets = [], []
    lengths = list(packing.lengths)
    for part, target in zip(torch.split(part_TC, lengths), torch.split(target_T, lengths), strict=True):
        asked = target != NOT_ASKED
        if bool(asked.any()):
            logits.append(part[asked])
            targets.append(target[asked])
    return logits, targets
