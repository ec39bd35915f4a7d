package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"example.org/mta/internal/testca"
)

// broker is a message broker that others made, in a process of its own. It keeps its data over a restart.
type broker struct {
	clear, tls string // "127.0.0.1:PORT"
	argv       []string
	log        string
	ready      func() error
	now        *process
}

// The login that every broker of the tests knows, by all mechanisms that it has.
const brokerUser, brokerPassword = "mta", "correct horse"

// begin starts the broker, and doesn't wait until it is ready.
func (b *broker) begin(t *testing.T) {
	t.Helper()
	var err error
	if b.now, err = launch(filepath.Base(b.argv[0]), b.log, b.argv...); err != nil {
		t.Fatal(err)
	}
}

// wait returns once the broker serves clients.
func (b *broker) wait(t *testing.T) {
	t.Helper()
	eventually(t, patience, func() error {
		if b.now.ended() {
			t.Fatalf("%s has ended:\n%s", b.now.name, tail(b.log))
		}
		return b.ready()
	})
}

// end ends the broker, by SIGKILL or as an operator would.
func (b *broker) end(kill bool) {
	if kill {
		b.now.kill()
	} else {
		b.now.stop(30 * time.Second)
	}
}

// newBroker has what all of them need; the ports are free.
func newBroker(t *testing.T) (b *broker, dir string) {
	dir = scratch(t)
	b = &broker{clear: freeAddress(t), tls: freeAddress(t), log: filepath.Join(dir, "log")}
	b.ready = func() error {
		conn, err := net.DialTimeout("tcp", b.clear, time.Second)
		if err == nil {
			conn.Close()
		}
		return err
	}
	t.Cleanup(func() {
		if b.now != nil {
			b.now.stop(10 * time.Second)
			if t.Failed() {
				t.Logf("the last that %s said:\n%s", b.now.name, tail(b.log))
			}
		}
	})
	return b, dir
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + commonPort(t, "127.0.0.1")
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// newKafka makes a cluster of one broker: PLAINTEXT at clear; TLS and SASL at tls. There are no topics.
func newKafka(t *testing.T, certificate brokerCertificate) *broker {
	jars := filepath.Join(cacheDir(), "kafka")
	if found, _ := filepath.Glob(jars + "/kafka_*.jar"); len(found) == 0 {
		cannot(t, "Kafka's jars are not in "+jars)
	}
	java := need(t, "java")[0]
	b, dir := newBroker(t)
	controller := freeAddress(t)
	jaas := fmt.Sprintf(`org.apache.kafka.common.security.plain.PlainLoginModule required user_%s="%s";`, brokerUser, brokerPassword)
	writeFile(t, dir+"/bundle.pem", certificate.bundle)
	writeFile(t, dir+"/server.properties", fmt.Sprintf(`
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[1]s
listeners=CLEAR://%[2]s,LOGIN://%[3]s,CONTROLLER://%[1]s
advertised.listeners=CLEAR://%[2]s,LOGIN://%[3]s
inter.broker.listener.name=CLEAR
controller.listener.names=CONTROLLER
listener.security.protocol.map=CLEAR:PLAINTEXT,LOGIN:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.login.plain.sasl.jaas.config=%[4]s
listener.name.login.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.login.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location=%[5]s/bundle.pem
log.dirs=%[5]s/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
`, controller, b.clear, b.tls, jaas, dir))
	run := []string{java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars + "/*"}
	scram := func(mechanism string) string {
		return fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, brokerUser, brokerPassword)
	}
	runClient(t, "", append(run, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", dir+"/server.properties",
		"--add-scram", scram("SCRAM-SHA-256"), "--add-scram", scram("SCRAM-SHA-512"))...)
	b.argv = append(run, "kafka.Kafka", dir+"/server.properties")
	return b
}

// newNATS makes a server with JetStream, at one address with and without TLS.
func newNATS(t *testing.T, certificate brokerCertificate) *broker {
	server := need(t, "nats-server")[0]
	b, dir := newBroker(t)
	b.tls = b.clear
	writeFile(t, dir+"/nats.conf", fmt.Sprintf(`
listen: "%s"
max_payload: 65536
jetstream { store_dir: "%s/data" }
authorization { user: "%s", password: "%s" }
tls { cert_file: "%s", key_file: "%s" }
allow_non_tls: true
`, b.clear, dir, brokerUser, brokerPassword, certificate.chain, certificate.key))
	b.argv = []string{server, "-c", dir + "/nats.conf"}
	b.ready = func() error {
		nc, err := nats.Connect("nats://"+b.clear, nats.UserInfo(brokerUser, brokerPassword))
		if err == nil {
			nc.Close()
		}
		return err
	}
	return b
}

// newRabbit makes a RabbitMQ node: clear at clear, TLS at tls; both want the login.
func newRabbit(t *testing.T, certificate brokerCertificate) *broker {
	server := filepath.Join("/usr/lib/rabbitmq/bin", "rabbitmq-server")
	if _, err := os.Stat(server); err != nil {
		cannot(t, "rabbitmq-server is not there")
	}
	epmd := need(t, "epmd")[0]
	b, dir := newBroker(t)
	names := freeAddress(t)
	// Erlang's name server: the node would start one that outlives it.
	start(t, "epmd", epmd, "-port", portOf(names), "-address", "127.0.0.1")
	writeFile(t, dir+"/rabbitmq.conf", fmt.Sprintf(`
listeners.tcp.1 = %s
listeners.ssl.1 = %s
ssl_options.cacertfile = %s
ssl_options.certfile = %s
ssl_options.keyfile = %s
default_user = %s
default_pass = %s
max_message_size = 1048576
log.console = true
log.file = false
`, b.clear, b.tls, certificate.authority, certificate.chain, certificate.key, brokerUser, brokerPassword))
	writeFile(t, dir+"/plugins", "[].\n")
	b.argv = []string{
		"/usr/bin/env", "HOME=" + dir, "ERL_EPMD_PORT=" + portOf(names), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=mta" + portOf(b.clear) + "@localhost", "RABBITMQ_DIST_PORT=" + portOf(freeAddress(t)),
		"RABBITMQ_MNESIA_BASE=" + dir + "/data", "RABBITMQ_LOG_BASE=" + dir, "RABBITMQ_PID_FILE=" + dir + "/pid",
		"RABBITMQ_CONFIG_FILE=" + dir + "/rabbitmq", "RABBITMQ_ENABLED_PLUGINS_FILE=" + dir + "/plugins", "RABBITMQ_CONF_ENV_FILE=" + dir + "/none",
		"RABBITMQ_GENERATED_CONFIG_DIR=" + dir + "/generated",
		server,
	}
	b.ready = func() error {
		conn, err := amqp091.Dial("amqp://" + brokerUser + ":" + strings.ReplaceAll(brokerPassword, " ", "%20") + "@" + b.clear + "/")
		if err == nil {
			conn.Close()
		}
		return err
	}
	return b
}

// brokerCertificate is one of 127.0.0.1, in the files that brokers want.
type brokerCertificate struct {
	authority, chain, key string // PEM
	bundle                string // their text, the key first
	trust                 *tls.Config
}

// newBrokerCertificate makes a certificate and its authority.
func newBrokerCertificate(t *testing.T) (c brokerCertificate) {
	authority := testca.New(t)
	c.authority = authority.File(t)
	c.chain, c.key = testca.Files(t, authority.Issue(t, []string{"127.0.0.1"}))
	for _, file := range []string{c.key, c.chain} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c.bundle += string(b)
	}
	c.trust = &tls.Config{RootCAs: authority.Pool()}
	return c
}
