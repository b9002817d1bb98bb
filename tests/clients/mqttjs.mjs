// One scenario with MQTT.js: node mqttjs.mjs URL VERSION NAME CA. Prints "ok" or the first thing that went wrong.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
const mqtt = createRequire(process.env.NODE_PACKAGES + "/")("mqtt");

const [url, version, name, ca] = process.argv.slice(2);
const five = version === "5";
const common = { protocolVersion: Number(version), reconnectPeriod: 0, connectTimeout: 4000, ...(ca ? { ca: readFileSync(ca) } : {}) };
const check = (truth, what) => { if (!truth) throw new Error(what); };

async function connect(clientId, more = {}) {
  const client = await mqtt.connectAsync(url, { ...common, clientId, ...more });
  client.inbox = [];
  client.waiting = null;
  client.on("message", (topic, payload, packet) => { client.inbox.push({ topic, payload, packet }); client.waiting?.(); });
  client.take = async (number) => {
    const deadline = Date.now() + 5000;
    while (client.inbox.length < number) {
      check(Date.now() < deadline, `${clientId}: ${client.inbox.length} of ${number} messages`);
      await new Promise((go) => { client.waiting = go; setTimeout(go, 50); });
    }
    return client.inbox.splice(0, number);
  };
  return client;
}

const publisher = await connect(`${name}-p`);
const subscriber = await connect(`${name}-s`);

await publisher.publishAsync(`${name}/kept`, "before", { qos: 1, retain: true });
await subscriber.subscribeAsync(`${name}/#`, { qos: 2 });
const [kept] = await subscriber.take(1);
check(kept.packet.retain && kept.payload.toString() === "before", "the retained message");

for (let number = 0; number < 60; number++) await publisher.publishAsync(`${name}/x`, String(number), { qos: number % 3 });
const messages = await subscriber.take(60);
for (const qos of [0, 1, 2]) {
  const numbers = messages.filter((one) => one.packet.qos === qos).map((one) => Number(one.payload));
  check(numbers.length === 20 && numbers.every((number, at) => number === at * 3 + qos), `QoS ${qos}: ${numbers}`);
}
await publisher.publishAsync(`${name}/large`, Buffer.alloc(500_000, 7), { qos: 2 });
check((await subscriber.take(1))[0].payload.length === 500_000, "a large message");

if (five) {
  const properties = {
    contentType: "text/plain", responseTopic: "answers", correlationData: Buffer.from([1, 2]), messageExpiryInterval: 60,
    userProperties: { unit: ["C", "K"] },
  };
  await publisher.publishAsync(`${name}/properties`, "21.5", { qos: 1, properties });
  const got = (await subscriber.take(1))[0].packet.properties;
  check(got.contentType === "text/plain" && got.responseTopic === "answers", "content type and response topic");
  check(got.correlationData.equals(properties.correlationData) && got.messageExpiryInterval <= 60, "correlation data and expiry");
  check(JSON.stringify(got.userProperties.unit) === '["C","K"]', "user properties");
}

const members = await Promise.all([1, 2].map((number) => connect(`${name}-m${number}`)));
for (const member of members) await member.subscribeAsync(`$share/g/${name}-jobs`, { qos: 1 });
for (let number = 0; number < 20; number++) await publisher.publishAsync(`${name}-jobs`, String(number), { qos: 1 });
const shared = (await Promise.all(members.map((member) => member.take(10)))).flat().map((one) => Number(one.payload));
check(new Set(shared).size === 20, `shared: ${shared}`);

await subscriber.subscribeAsync(`${name}-gone`, { qos: 1 });
const mortal = await connect(`${name}-mortal`, { will: { topic: `${name}-gone`, payload: "dead", qos: 1, retain: false } });
mortal.stream.destroy();
check((await subscriber.take(1))[0].payload.toString() === "dead", "the will");

const keep = five ? { clean: false, properties: { sessionExpiryInterval: 600 } } : { clean: false };
const first = await connect(`${name}-keep`, keep);
await first.subscribeAsync(`${name}-later`, { qos: 2 });
await first.endAsync();
await publisher.publishAsync(`${name}-later`, "while away", { qos: 2 });
let present = null;
const again = mqtt.connect(url, { ...common, clientId: `${name}-keep`, ...keep });
const resumed = new Promise((done, failed) => { again.on("message", (_, payload) => done(payload.toString())); setTimeout(failed, 5000); });
again.on("connect", (connack) => { present = connack.sessionPresent; });
check((await resumed) === "while away" && present, "the session");

for (const client of [publisher, subscriber, again, ...members]) await client.endAsync();
console.log("ok");
process.exit(0);
