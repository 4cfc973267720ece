// Package publish decides what the Service and the ElasticService of a GameType say: its ports,
// those of earlier revisions that still have players, and the settings that the GameType has for
// them. It writes nothing.
package publish
