package api

import "context"

// Cluster is how the cluster and this relay's part in it are.
type Cluster struct {
	On     bool `json:"on"`             // the configuration has a cluster block
	Node   int  `json:"node,omitempty"` // the number of this relay
	Takes  bool `json:"takes_part"`     // it takes part
	Shards int  `json:"shards"`         // of 64: those for which it decides about limits
	// seconds since the database's last answer to this node; without a meaning while it takes no part
	Silent  float64  `json:"database_silent"`
	Lost    string   `json:"lost_writes,omitempty"` // the writes that the database has lost; absent: none
	Waiting int      `json:"changes_waiting"`       // changes, of what all nodes know, that wait on this relay's disk
	Trouble []string `json:"trouble"`               // the reasons of the cluster's alarms

	Members []ClusterMember `json:"members"` // as read last, by number
}

// ClusterMember is a node of a cluster.
type ClusterMember struct {
	Node        int     `json:"node"`                // its number
	Address     string  `json:"address"`             // at which the others reach it
	Version     string  `json:"version"`             // of its program
	Incarnation uint64  `json:"incarnation"`         // raised when it is forgotten
	Seen        float64 `json:"seen"`                // seconds since it wrote to the database that it is there
	Forgotten   bool    `json:"forgotten,omitempty"` // its number is free
}

// Clusters is what the server asks of the relay about its cluster.
type Clusters interface {
	Cluster(context.Context) (Cluster, error)
}
