// A player of the npm package mineflayer: miner.js ADDRESS PORT NAME COLUMN logs in, tells how high
// the world is at (0, 0) to (15, 0), digs the highest block at (COLUMN, 0), and leaves once its
// standard input ends. It prints the heights as a line of JSON when it has dug; a COLUMN below 0
// digs nothing.
'use strict'
const mineflayer = require('mineflayer')
const { Vec3 } = require('vec3')

const [host, port, username, column] = process.argv.slice(2)
const bot = mineflayer.createBot({ host, port: Number(port), username, version: '1.16.5', auth: 'offline', physicsEnabled: false, hideErrors: true })
const fail = (why) => {
  console.error(why)
  process.exit(1)
}
bot.on('error', fail)
bot.on('kicked', fail)
bot.on('end', fail)

const height = (x) => {
  for (let y = 10; y >= 0; y--) {
    const block = bot.blockAt(new Vec3(x, y, 0))
    if (block && block.name !== 'air') return y
  }
  return -1
}
const look = () => {
  if (!bot.blockAt(new Vec3(0, 0, 0))) return setTimeout(look, 100) // the chunk isn't there yet
  const heights = Array.from({ length: 16 }, (_, x) => height(x))
  const x = Number(column)
  if (x >= 0) {
    const location = { x, y: heights[x], z: 0 }
    bot._client.write('block_dig', { status: 0, location, face: 1 })
    bot._client.write('block_dig', { status: 2, location, face: 1 })
  }
  console.log(JSON.stringify(heights))
}
bot.once('spawn', look)
process.stdin.on('end', () => {
  bot.removeListener('end', fail)
  bot.on('end', () => process.exit(0))
  bot.quit()
})
process.stdin.resume()
