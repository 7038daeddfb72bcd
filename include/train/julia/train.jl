# SPDX-License-Identifier: Apache-2.0
# In which quadrants of a square a point lies, learned by a network of two layers in plain Julia, without a package:
#
#     julia train.jl 2000        # steps
#
# Nothing of Airflow's is needed in another language: the environment says where to save, the exit status says how it
# ended. Julia ends at once when it is asked to stop (SIGTERM); as after a kill, the next attempt continues from the
# newest checkpoint, and ends with the same loss, because the points of a step depend only on the seed and the step.
# Arrays of Reactant.jl or CUDA.jl in `start` and `examples` bring it to a TPU or a GPU.

using Random, Serialization

const OUTPUT = get(ENV, "TRC_OUTPUT_DIR", "output")
const CHECKPOINT = joinpath(get(ENV, "TRC_CHECKPOINT_DIR", "checkpoints"), "newest.jls")
const SEED = something(tryparse(Int, get(ENV, "TRC_SEED", "")), 0)
const SAVE_EVERY = 100

"The network before its first step."
function start()
    random = Xoshiro(SEED)
    return (step = 0, w1 = randn(random, 16, 2), b1 = zeros(16), w2 = randn(random, 1, 16) ./ 4, b2 = zeros(1))
end

"The points of a step, one a column, and whether their coordinates have the same sign."
function examples(step)
    points = 2 .* rand(Xoshiro(1_000_003 * (SEED + 1) + step), 2, 64) .- 1
    return points, Float64.(points[1:1, :] .* points[2:2, :] .> 0)
end

"What the network makes of some points: its hidden layer, and the probability of the same sign."
function forward(net, points)
    hidden = tanh.(net.w1 * points .+ net.b1)
    return hidden, 1 ./ (1 .+ exp.(-(net.w2 * hidden .+ net.b2)))
end

"The network after one more step of gradient descent."
function advance(net; rate = 0.5)
    points, labels = examples(net.step)
    hidden, guess = forward(net, points)
    out = (guess .- labels) ./ size(points, 2)
    back = (net.w2' * out) .* (1 .- hidden .^ 2)
    return (step = net.step + 1,
            w1 = net.w1 - rate * back * points', b1 = net.b1 - rate * vec(sum(back, dims = 2)),
            w2 = net.w2 - rate * out * hidden', b2 = net.b2 - rate * vec(sum(out, dims = 2)))
end

"Cross entropy on points that no step has."
function loss(net)
    points, labels = examples(-1)
    guess = forward(net, points)[2]
    return -sum(labels .* log.(guess) .+ (1 .- labels) .* log.(1 .- guess)) / length(labels)
end

"Replace a file as a whole: the name that is read never stands for half a file. (`mv` would remove the old one first.)"
function replace_file(fill, path)
    mkpath(dirname(path))
    fill(path * ".tmp")
    Base.Filesystem.rename(path * ".tmp", path)
end

function main(total)
    net = isfile(CHECKPOINT) ? deserialize(CHECKPOINT) : start()
    println("training from step $(net.step) of $total")
    while net.step < total
        net = advance(net)
        if net.step % SAVE_EVERY == 0 || net.step == total
            replace_file(path -> serialize(path, net), CHECKPOINT)
            replace_file(path -> write(path, """{"step": $(net.step), "total_steps": $total}"""), joinpath(OUTPUT, "progress.json"))
            println("step $(net.step): loss $(loss(net))")
        end
    end
    replace_file(path -> write(path, """{"loss": $(loss(net))}"""), joinpath(OUTPUT, "metrics.json"))
end

main(parse(Int, get(ARGS, 1, "2000")))
