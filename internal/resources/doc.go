// Package resources decides which devices a node offers under which extended
// resource: by MIG strategy, by name patterns, and by sharing.
//
// Plan is a pure function of an inventory and a Config. A layout that does not
// fit the strategy costs what does not fit, which is in the plan's Problems;
// the rest is offered. Device IDs are stable: a card's UUID, and with sharing
// UUID::0 to UUID::n-1, so more replicas add IDs and fewer take the highest
// ones away.
package resources
