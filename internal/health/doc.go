// Package health decides whether a card may be used, and says why not.
//
// Four things speak for or against a card: the XIDs that the driver reports
// (policy.go says what each asks for), what a look at the card finds
// (counters, recovery action, fabric, device nodes), the operator's cordon, and
// evidence that a card was reset. Monitor puts them together:
//
//   - an XID that asks for a reset, a reboot or another card is a fault. It
//     stays until what it asks for was seen to happen, over restarts of this
//     program too: a card is not healthy because nobody remembers.
//   - a look that finds a card unusable counts at once; it must have been found
//     usable for a while before that is believed, so that a card which comes
//     and goes is not handed out in between.
//   - an error about one MIG instance concerns that one, and one about the card
//     every MIG device and every replica of it.
//
// A driver that tells of no XIDs for a card is no fault of the card's: its
// uncorrected memory errors are watched instead.
package health
